"""A directory is removed when its judge has ended, and never while it lives."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kbevolve.configs.errors import EvaluatorError
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.sandbox import directories, launch
from kbevolve.evaluators.sandbox.forkserver import ForkServer

ROOT = Path(__file__).parents[3]
SWEEP = "from kbevolve.evaluators.sandbox import directories; directories.remove_stale()"


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def run(*command: str, folder: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode and command[0] == "unshare":
        pytest.skip(f"no namespace of processes here: {done.stderr}")
    assert not done.returncode, done.stderr
    return done.stdout.strip()


def test_directories_of_an_ended_judge_are_removed_and_of_living_ones_are_not(tmp_path: Path) -> None:
    mine = directories.make()
    code = "from kbevolve.evaluators.sandbox import directories; print(directories.make(), directories.empty())"
    theirs = [Path(word) for word in run(sys.executable, "-c", code, folder=tmp_path).split()]
    assert all(path.parent == tmp_path and path.exists() for path in theirs)
    directories.remove_stale()
    assert mine.exists()
    assert not any(path.exists() for path in theirs)


def test_a_judge_of_another_namespace_of_processes_removes_nothing_of_ours(tmp_path: Path) -> None:
    """It cannot see our processes, and found them dead: it removed the directories under running evaluations."""
    mine = directories.make()
    run("unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", SWEEP, folder=tmp_path)
    run("unshare", "--pid", "--fork", sys.executable, "-c", SWEEP, folder=tmp_path)  # our /proc, another namespace
    assert mine.exists()


def test_a_process_with_the_id_of_an_ended_judge_does_not_keep_its_directory(tmp_path: Path) -> None:
    mine = directories.make()
    namespace, pid, start, rest = mine.name.removeprefix(directories.PREFIX).split("-")
    reused = mine.with_name(f"{directories.PREFIX}{namespace}-{pid}-{int(start, 16) - 1:x}-{rest}")
    reused.mkdir()
    directories.remove_stale()
    assert mine.exists()
    assert not reused.exists()


@pytest.mark.parametrize(
    "name", ["", "1-2", "123-other-x", "NAMESPACE-", "NAMESPACE-1-2", "NAMESPACE-1-2-3-4", "NAMESPACE-x-2-3"]
)
def test_names_of_others_are_left_alone(tmp_path: Path, name: str) -> None:
    other = tmp_path / f"{directories.PREFIX}{name.replace('NAMESPACE', directories._namespace())}"
    other.mkdir()
    directories.remove_stale()
    assert other.exists()


def test_a_fork_server_whose_directory_another_thread_removed_is_reported(tmp_path: Path) -> None:
    """A worker that was about to start failed with FileNotFoundError, which ended its evaluation."""
    server = ForkServer.__new__(ForkServer)
    server.directory = tmp_path / "removed"
    with pytest.raises(EvaluatorError, match="did not start"):
        launch.start(find_device("cpu"), server)
