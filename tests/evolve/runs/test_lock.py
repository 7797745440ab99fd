"""Two processes never go on with one run at once."""

import subprocess
import sys
from pathlib import Path

import pytest

from kbevolve.archive.records import Run
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import UsageError
from kbevolve.evolve.runs.lock import lock_holder, run_lock
from tests.evolve.doubles import open_run, settings

HOLD = """
import sys
from kbevolve.archive.store import Archive
from kbevolve.evolve.runs.lock import run_lock

with Archive(sys.argv[1]) as archive, run_lock(archive, archive.runs.get(sys.argv[2])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def home(tmp_path: Path) -> tuple[Path, Run, Run]:
    path = tmp_path / "kbevolve.db"
    with Archive(path) as archive:
        return path, open_run(archive, settings(), "one-1"), open_run(archive, settings(), "another-1")


def test_a_run_is_held_until_its_process_ends_however_it_does(home: tuple[Path, Run, Run]) -> None:
    path, run, other = home
    with (
        subprocess.Popen(
            [sys.executable, "-c", HOLD, str(path), run.id], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process,
        Archive(path) as archive,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with (
            pytest.raises(UsageError, match=r"another process works on run one-1; wait for it"),
            run_lock(archive, run, patience=0.2),
        ):
            pytest.fail("both hold it")
        with run_lock(archive, other):
            pass
        process.kill()
        process.wait()
        with run_lock(archive, run, patience=5):
            pass


def test_a_file_has_one_lock_however_its_path_is_written(
    home: tuple[Path, Run, Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, run, _ = home
    below, link = path.parent / "below", path.parent / "link.db"
    below.mkdir()
    link.symlink_to(path)
    monkeypatch.chdir(below)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path), run.id], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        for other in (path, Path("../kbevolve.db"), link):
            with Archive(other) as same:
                assert lock_holder(same, run) == process.pid
        process.kill()
