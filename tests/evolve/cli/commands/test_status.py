"""A run seen from a second terminal: `kbevolve status` and `kbevolve watch`."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.store import Archive
from kbevolve.evolve.cli.commands import status as commands
from kbevolve.evolve.runs.lock import lock_holder
from tests.small_archive import Sample

#: Holds the lock of the newest run until its standard input ends.
HOLD = """
import sys
from kbevolve.archive.store import Archive
from kbevolve.evolve.runs.lock import run_lock
with Archive(sys.argv[1]) as archive, run_lock(archive, archive.runs.get()):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def worker(make_archive: Callable[..., Sample]) -> Any:
    """A process that works on a run which has not stopped, and the sample."""
    sample = make_archive(stop=None)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(sample.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process, sample
        if process.stdin is not None:
            process.stdin.close()


def test_the_holder_of_a_lock_is_found_and_keeps_it(worker: Any) -> None:
    process, sample = worker
    with Archive(sample.path, read_only=True) as archive:
        run = archive.runs.get()
        assert lock_holder(archive, run) == lock_holder(archive, run) == process.pid
        process.stdin.close()
        process.wait()
        assert lock_holder(archive, run) is None


def test_status_names_the_process_the_best_and_the_counts(kbevolve: Callable[..., Any], worker: Any) -> None:
    process, sample = worker
    shown = kbevolve("status", "--archive", sample.path).out
    assert f"process {process.pid} works on it" in shown
    assert sample.best in shown
    found = json.loads(kbevolve("status", sample.run.id, "--archive", sample.path, "--json").out)
    assert found["process"] == process.pid
    assert found["kernel"] == sample.best
    assert sum(found["verdicts"].values()) == len(sample.evaluations)
    assert sum(found["attempts"].values()) == len(sample.births)
    assert found["recent"][-1]["note"] == sample.births[-1].note


def test_a_run_whose_process_was_killed_says_so(
    kbevolve: Callable[..., Any], make_archive: Callable[..., Sample]
) -> None:
    sample = make_archive(stop=None)
    assert "`kbevolve resume` continues it" in kbevolve("status", "--archive", sample.path).out
    with Archive(sample.path) as archive:
        assert lock_holder(archive, archive.runs.get()) is None


def test_watch_follows_until_the_process_ends(
    kbevolve: Callable[..., Any], worker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, sample = worker
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            process.stdin.close()
            process.wait()

    monkeypatch.setattr(commands, "sleep", pause)
    done = kbevolve("watch", "--every", "7", "--archive", sample.path)
    assert (done.code, pauses) == (0, [7.0, 7.0])
    assert sample.best in done.out


def test_both_only_read(kbevolve: Callable[..., Any], tmp_path: Path) -> None:
    for command in ("status", "watch"):
        done = kbevolve(command, "--archive", tmp_path / "none.db")
        assert done.code == 1
        assert "no archive at" in done.err
    assert list(tmp_path.iterdir()) == []
