"""What `kbevolve run` refuses before it judges anything, and what it says at the start and at the end."""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.store import Archive
from kbevolve.evolve.cli.options import archive_words
from kbevolve.evolve.runs.pending import batch_command
from tests.evolve.cli.commands.test_run import KERNEL, PROBLEM

SMOKE = ("--preset", "smoke", "--device", "cpu", "--generations", "1")


def type_in(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])}
    command = [sys.executable, "-m", "kbevolve", *words]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("forward", "complaint"),
    [
        ("x + torch.rand_like(x)", "random"),
        ("x @ torch.ones(3)", "forward() fails on cpu"),
        ("__import__('os')._exit(0)", "it calls os._exit(0), which would end kbevolve"),
        ("exit()", "the problem's file ended the program"),
    ],
)
def test_a_refused_problem_leaves_no_run_behind(tmp_path: Path, forward: str, complaint: str) -> None:
    (tmp_path / "odd.py").write_text(PROBLEM.replace("x + x", forward))
    done = type_in(tmp_path, "run", "odd.py", *SMOKE)
    assert done.returncode == 1
    assert complaint in done.stderr
    assert "There is nothing to search: no model is configured" in done.stdout
    if "ended" not in complaint:
        with Archive(tmp_path / "kbevolve.db", create=False) as archive:
            assert not archive.runs.summaries()


@pytest.mark.slow
def test_what_run_refuses_is_not_accepted_by_check(tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text(PROBLEM.replace("x + x", "x + torch.rand_like(x)"))
    done = type_in(tmp_path, "problems", "check", "odd.py", "--device", "cpu")
    assert "refused: its answer is random" in done.stdout


def test_an_unreachable_model_is_found_before_anything_is_judged(
    tmp_path: Path, kbevolve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    (tmp_path / "twice.py").write_text(PROBLEM)
    done = kbevolve("run", "twice.py", *SMOKE, "--model", "nobody", "--api-base", "http://127.0.0.1:9/v1")
    assert done.code == 1
    assert done.err.startswith("kbevolve: cannot connect to http://127.0.0.1:9/v1 (")
    assert "start the server, or correct --api-base" in done.err
    assert not (tmp_path / "kbevolve.db").exists()


@pytest.mark.slow
def test_a_busy_machine_is_named_at_the_start_and_at_the_end(
    tmp_path: Path, kbevolve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "getloadavg", lambda: (99.0, 0.0, 0.0))
    (tmp_path / "twice.py").write_text(PROBLEM)
    (tmp_path / "kernel.py").write_text(KERNEL)
    done = kbevolve("run", "twice.py", *SMOKE, "--start", "kernel.py", "--archive", "my runs.db", "--no-baselines")
    assert done.code == 0, done.err
    assert "This machine is busy (load 99.0" in done.out
    assert "On a quiet one: kbevolve verify twice-" in done.out
    assert "No model is configured, so children differ in their tunables only" in done.out
    commands = [line.strip().split("  ")[0] for line in done.out.splitlines() if line.startswith("  kbevolve ")]
    assert len(commands) == 4
    assert all(shlex.split(command)[-2:] == ["--archive", "my runs.db"] for command in commands)
    assert " from 6 attempts: " in done.out


def test_commands_that_are_shown_can_be_copied() -> None:
    assert archive_words(Path("my runs.db")) == " --archive 'my runs.db'"
    assert archive_words(Path("kbevolve.db")) == ""
    assert shlex.split(batch_command(Path("my kernels")))[3:6] == ["my kernels", "--problem", "my kernels/problem.py"]
