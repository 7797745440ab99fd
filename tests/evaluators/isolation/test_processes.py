import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kbevolve.evaluators.isolation import processes, sandbox


def sleeper(directory: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    code = "import threading, time; threading.Thread(target=time.sleep, args=(100,)).start(); print(1, flush=True)"
    child = subprocess.Popen(
        [sys.executable, "-c", code], cwd=directory, env=environment, start_new_session=True, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    child.stdout.readline()
    child.stdout.close()
    return child


def test_members_of_a_group_are_counted(tmp_path: Path) -> None:
    child = sleeper(tmp_path, {})
    try:
        (found,) = processes.members(child.pid)
        assert (found.pid, found.parent, found.ended) == (child.pid, os.getpid(), False)
    finally:
        processes.kill([child.pid])
        deadline = time.monotonic() + 10
        while processes.members(child.pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not processes.members(child.pid)  # ended, although nobody has waited for it
        child.wait()


def test_what_a_dead_judge_left_is_ended_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    directory = tmp_path / f"{sandbox.DIRECTORY_PREFIX}999999999-x"
    (directory / "work").mkdir(parents=True)
    by_home = sleeper(tmp_path, {"HOME": f"{directory}/home"})
    by_place = sleeper(directory / "work", {})
    other = sleeper(tmp_path, {"HOME": f"{directory}-other/home"})
    try:
        assert set(processes.strays(directory)) == {by_home.pid, by_place.pid}
        sandbox.sweep_directories()
        assert by_home.wait(10) < 0
        assert by_place.wait(10) < 0
        assert other.poll() is None
        assert not directory.exists()
    finally:
        for child in (by_home, by_place, other):
            child.kill()
            child.wait()
