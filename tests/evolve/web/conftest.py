"""Archives that pages must survive, and the pages of an archive."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from kbevolve.archive.records import Kernel
from kbevolve.archive.store import Archive
from kbevolve.evolve.web.app import create_app
from kbevolve.evolve.web.snapshot import Snapshot
from tests.small_archive import Sample

#: Runs when a page puts it into its markup without escaping; the test looks for the title.
SCRIPT = '"><script>document.title="owned"</script><img src=x onerror=\'document.title="owned"\'>'
SOURCES = {
    "script": f"# {SCRIPT}\n{SCRIPT}\nclass ModelNew: pass\n",
    "long line": "x = '" + "y" * 2_000_000 + "'\n",
    "many lines": "a = 1\n" * 60_000,
    "control": "a = 1\x00\x1b[31m\u202e\ufeff\u2028b\n",
    "quotes": "'" * 4_000 + '"' * 4_000 + "\n",
}


def make_hostile(sample: Sample) -> Path:
    """Fill a run with what another program, or a model, may have written; returns the file."""
    run = sample.run
    file = sqlite3.connect(sample.path)
    file.execute("pragma foreign_keys = off")
    kernels = [Kernel.from_source(source) for source in SOURCES.values()]
    for kernel in kernels:
        file.execute("insert or ignore into kernels values (?, ?, ?)", (kernel.id, kernel.backend.name, kernel.source))
    names = [kernel.id for kernel in kernels]
    file.execute("insert into kernels values ('broken', 'TORCH', cast(x'64ff00fe0a3c7363726970743e' as text))")
    file.execute("insert into kernels values ('bytes', 'TORCH', x'00ff80c0af')")
    file.execute("insert into kernels values (?, 'TORCH', 'pass')", (SCRIPT,))
    names += ["broken", "bytes", SCRIPT]
    file.execute("insert into ideas values ('idea', ?, ?, ?, ?, 1e308, ?)", (SCRIPT,) * 5)
    file.execute("insert into texts values ('text', ?)", (SCRIPT * 50,))
    best = sample.best
    # A circle of parents, a kernel that is its own parent, and parents that are nowhere.
    parents = [[names[1]], [names[2]], [names[0]], [names[3]], ["nowhere", "<b>"], [best], [names[5]], ["' or 1=1"]]
    for slot, (kernel_id, of) in enumerate(zip(names, parents, strict=True)):
        file.execute(
            "insert into births (run, generation, island, slot, operator, state, parents, kernel, idea, note, prompt,"
            " reply, model, prompt_tokens, completion_tokens, seconds, at)"
            " values (?, ?, -3, ?, 'MUTATE', 'CREATED', ?, ?, 'idea', ?, 'text', 'text', ?, 1, 1, 0.0, '')",
            (run.id, 50 + slot, slot, json.dumps(of), kernel_id, SCRIPT, SCRIPT),
        )
        file.execute(
            "insert into evaluations (kernel, problem, device, precision, verdict, message, time_ms, reference_ms,"
            " speedup, speedup_low, speedup_high, tags, build_seconds, seconds, at) values"
            " (?, ?, ?, 'fp32', 'CORRECT', ?, 1e-9, 1.0, ?, ?, 1e12, ?, 0.0, 0.0, '')",
            (kernel_id, run.problem, run.device, SCRIPT, 10.0**slot, 10.0**slot, json.dumps([SCRIPT])),
        )
        file.execute(
            "insert into placements (run, island, niche, kernel, generation, via)"
            " values (?, 99, ?, ?, 51, 'migration')",
            (run.id, SCRIPT, kernel_id),
        )
    file.commit()
    file.close()
    return sample.path


@pytest.fixture
def open_pages() -> Iterator[Callable[[Path], FlaskClient]]:
    """A client of the pages of an archive."""
    with ExitStack() as opened:

        def open_one(path: Path) -> FlaskClient:
            return create_app(Snapshot(opened.enter_context(Archive(path, read_only=True)))).test_client()

        yield open_one
