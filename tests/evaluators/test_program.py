"""A program of ours in a process of its own: it waits for its turn, is paused while a kernel is timed, ends in time."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kbevolve.evaluators.device import lock
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.program import Program, ProgramError, run_program

#: In place of Python: waits as the program does, and then works in a child until it is killed.
WORKING = "#!/bin/sh\ncat\n(while :; do touch {mark}; sleep 0.02; done) &\nwait\n"


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Replaces the interpreter; returns the file that it touches while it works."""

    def replaced(text: str) -> Path:
        mark, python = tmp_path / "alive", tmp_path / "python"
        python.write_text(text.format(mark=mark))
        python.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(python))
        return mark

    return replaced


def works(mark: Path, *, seconds: float = 10.0) -> bool:
    """Whether it works within so many seconds."""
    mark.unlink(missing_ok=True)
    deadline = time.monotonic() + seconds
    while not mark.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return mark.exists()


@contextmanager
def waiting(process: Program) -> Iterator[list[ProgramError]]:
    """A thread waits for its end; yields the error that it gets after the process is killed."""
    found: list[ProgramError] = []

    def wait() -> None:
        with pytest.raises(ProgramError) as error:
            process.wait()
        found.append(error.value)

    thread = threading.Thread(target=wait)
    thread.start()
    with process:
        yield found
    thread.join(10)
    assert not thread.is_alive()


def test_it_works_from_when_it_is_asked_and_ends_with_its_context(program: Callable[[str], Path]) -> None:
    mark = program(WORKING)
    process = Program("module", [], seconds=60)
    assert not works(mark, seconds=0.4), "it did not wait"
    with waiting(process) as found:
        assert works(mark)
    assert str(found[0]) == "it was ended"
    assert process.closed
    assert not works(mark, seconds=0.4), "its child lives on"


@pytest.mark.usefixtures("own_locks")
def test_it_is_paused_while_a_kernel_is_timed(program: Callable[[str], Path]) -> None:
    mark, device = program(WORKING), find_device("cpu")
    with waiting(Program("module", [], seconds=60, device=device)):
        assert works(mark)
        with lock.exclusive(device):
            assert not works(mark, seconds=0.4)
        assert works(mark), "it was not resumed"


@pytest.mark.usefixtures("own_locks")
def test_a_child_that_was_forked_during_a_pause_is_resumed(program: Callable[[str], Path], tmp_path: Path) -> None:
    mark, device = program(WORKING.replace("&\n", f"&\necho $! > {tmp_path}/child\n")), find_device("cpu")
    with waiting(Program("module", [], seconds=60, device=device)):
        assert works(mark)
        with lock.exclusive(device):
            assert not works(mark, seconds=0.4)
        assert works(mark)
        # Linux passes the signal that stops a group on to a child that is being forked, and not the one that resumes.
        os.kill(int((tmp_path / "child").read_text()), signal.SIGSTOP)
        time.sleep(0.1)
        assert works(mark)


@pytest.mark.usefixtures("own_locks")
def test_its_end_waits_for_no_other_process(program: Callable[[str], Path]) -> None:
    mark, device = program(WORKING), find_device("cpu")
    with lock.exclusive(device):
        began = time.monotonic()
        with waiting(Program("module", [], seconds=60, device=device)) as found:
            assert not works(mark, seconds=0.2)
        assert time.monotonic() - began < 5
    assert str(found[0]) == "it was ended"


def test_its_process_group_ends_with_its_time(program: Callable[[str], Path]) -> None:
    mark = program(WORKING)
    with Program("module", [], seconds=2.0) as process:
        with pytest.raises(ProgramError, match=r"not done after 2 s"):
            process.wait()
        assert mark.exists(), "its child never ran"
        assert not works(mark, seconds=0.4), "its child lives on"


def test_its_last_line_is_the_reason(program: Callable[[str], Path]) -> None:
    program("#!/bin/sh\necho one >&2\necho no licence >&2\nexit 1\n")
    with pytest.raises(ProgramError, match="no licence"):
        run_program("module", [], seconds=20)
    program("#!/bin/sh\nexit 3\n")
    with pytest.raises(ProgramError, match="its process ended with status 3"):
        run_program("module", [], seconds=20)
