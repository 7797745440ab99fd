"""What any test may ask for: a small realistic archive (`small_archive`, `make_archive`), the command `kbevolve`."""

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from kbevolve.archive.records import (
    Verdict,
)
from kbevolve.archive.store import Archive
from kbevolve.evolve.cli.main import main
from tests.small_archive import Sample, fill

# The same examples in every run, and no limits of time: a busy machine is no failure.
hypothesis.settings.register_profile(
    "kbevolve",
    deadline=None,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.differing_executors],
)
hypothesis.settings.load_profile("kbevolve")


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Cards, rates and baselines that tests make go to a directory of this session, never to the user's own."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KBEVOLVE_CACHE", str(shared / "kbevolve-cache"))
        yield


@pytest.fixture
def own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks on devices that no other process of the tests holds: two that hold one in part wait for each other."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


@dataclass(frozen=True)
class Outcome:
    """What a command did."""

    code: int
    out: str
    err: str


@pytest.fixture
def kbevolve(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """Call the command line as in a pipe: ``kbevolve("archive", "ls")``."""
    for name in ("FORCE_COLOR", "COLUMNS", "KBEVOLVE_ARCHIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))

    def call(*words: object) -> Outcome:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main([str(word) for word in words])
        captured = capsys.readouterr()
        return Outcome(int(stop.value.code or 0), captured.out, captured.err)

    return call


@pytest.fixture
def make_archive(tmp_path: Path) -> Callable[..., Sample]:
    """Write a run (arguments of `fill`) into the file `name` of the test's directory; may be called again."""

    def make(name: str = "kbevolve.db", **options: Any) -> Sample:
        with Archive(tmp_path / name) as archive:
            run, problem, births, evaluations = fill(archive, **options)
        correct = [one for one in evaluations.values() if one.verdict is Verdict.CORRECT]
        best = max(correct, key=lambda one: one.timing.speedup_low or 0.0)
        return Sample(tmp_path / name, run, problem, best.kernel, tuple(births), evaluations)

    return make


@pytest.fixture
def small_archive(make_archive: Callable[..., Sample]) -> Sample:
    """An archive of one finished run: 3 islands, 8 generations, every verdict, operator and state of birth."""
    return make_archive()
