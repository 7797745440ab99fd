"""The command line before any command: help, and errors of one line."""

import subprocess
import sys
from typing import Any

import pytest

from kbevolve import __version__


@pytest.mark.parametrize("group", [(), ("archive",), ("problems",)])
def test_a_group_without_a_command_shows_its_help_alone(kbevolve: Any, group: tuple[str, ...]) -> None:
    outcome = kbevolve(*group)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith(f"Usage: {' '.join(('kbevolve', *group))} ")
    assert outcome.out == kbevolve(*group, "--help").out


def test_a_reader_that_ends_early_is_no_error() -> None:
    command = [sys.executable, "-m", "kbevolve", "problems", "ls"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.close()  # as `| head` does, here before the first line
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert process.returncode == 0


def test_an_unknown_option_is_one_line_and_where_to_look(kbevolve: Any) -> None:
    outcome = kbevolve("archive", "ls", "--nothing")
    assert outcome.code == 2
    complaint, see = outcome.err.splitlines()
    assert complaint.startswith("kbevolve: No such option")
    assert see == "See: kbevolve archive ls --help"


def test_work_that_was_given_up_does_not_abort_the_process() -> None:
    """A thread that is in torch when the interpreter ends would: `terminate called without an active exception`."""
    multiply = "import threading, torch\na = torch.randn(300, 300)\ndef work():\n    while True: a @ a\n"
    command = "threading.Thread(target=work, daemon=True).start()\nfrom kbevolve.evolve.cli.main import main\nmain()\n"
    done = subprocess.run(
        [sys.executable, "-c", multiply + command, "--no-such-option"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2, done.stderr
    assert "See: kbevolve --help" in done.stderr


def test_the_version_has_a_short_option(kbevolve: Any) -> None:
    assert kbevolve("-V").out == kbevolve("--version").out == f"kbevolve, version {__version__}\n"


def test_quiet_and_verbose_may_be_anywhere_and_exclude_each_other(kbevolve: Any) -> None:
    assert kbevolve("problems", "ls", "-q").out == kbevolve("-q", "problems", "ls").out
    both = kbevolve("-q", "problems", "ls", "-v")
    assert (both.code, both.out) == (2, "")
