"""Kernels that attack the machine, not the clock: each gets its verdict, and the next kernel is judged as usual."""

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kbevolve.archive.records import Evaluation, Verdict
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.sandbox.worker import Worker
from tests.hacks.conftest import Judges

HERE = Path(__file__).parent
HONEST = (HERE / "kernels" / "07_stale_memory" / "twin.py").read_text()
#: File, its verdict, and words of the message.
ATTACKS = (
    ("hang_on_import", Verdict.TIMED_OUT, "stopped after"),
    ("hang_in_forward", Verdict.TIMED_OUT, "stopped after"),
    ("memory_bomb", Verdict.CRASHED, "memory"),
    ("flood", Verdict.CRASHED, "exit code 1"),
    ("segmentation_fault", Verdict.CRASHED, "SIGSEGV"),
    ("early_exit", Verdict.CRASHED, "exit code 0"),
    ("full_disk", Verdict.CRASHED, ""),
    ("many_files", Verdict.CRASHED, "MB in files"),
    ("files_in_forward", Verdict.CRASHED, "MB in files"),
    ("files_in_memory", Verdict.CRASHED, "MB in files"),
)

SLOW = (
    "files_in_forward", "files_in_memory", "flood", "full_disk", "hang_in_forward", "hang_on_import", "many_files",
    "memory_bomb", "segmentation_fault",
)  # fmt: skip

Attack = Callable[..., Evaluation]


@pytest.fixture
def attack(judges: Judges) -> Iterator[Attack]:
    """Judge an attack. After the test, the same judge must accept an honest kernel."""

    def judged(name: str, **values: object) -> Evaluation:
        source = (HERE / "attacks" / f"{name}.py").read_text()
        for key, value in values.items():
            source = source.replace(key, str(value))
        return judges.evaluate("matmul", source, lint_refuses=False)

    yield judged
    found = judges.evaluate("matmul", HONEST)
    assert found.verdict is Verdict.CORRECT, found.message


@pytest.fixture(scope="session")
def level() -> str:
    """The level of confinement of a worker on this machine."""
    worker = Worker(find_device("cpu"))
    try:
        worker.wait_ready()
        return worker.sandbox
    finally:
        worker.kill()


@pytest.mark.parametrize(
    ("name", "verdict", "words"),
    [pytest.param(*one, id=one[0], marks=pytest.mark.slow if one[0] in SLOW else ()) for one in ATTACKS],
)
def test_attack(attack: Attack, name: str, verdict: Verdict, words: str) -> None:
    found = attack(name)
    assert found.verdict is verdict, found.message
    assert words in found.message
    assert len(found.message) <= 2100


@pytest.mark.slow
def test_a_fork_bomb_is_defused(attack: Attack) -> None:
    found = attack("fork_bomb")
    assert found.verdict in (Verdict.CRASHED, Verdict.TIMED_OUT, Verdict.REFUSED), found.message


def test_no_process_outlives_its_kernel(attack: Attack) -> None:
    marker = f"98765.{os.getpid()}"
    found = attack("daemon", MARKER=marker)
    assert found.verdict is Verdict.CRASHED, found.message
    deadline = time.monotonic() + 5
    while _running(marker) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not _running(marker)


def test_nothing_is_written_outside(attack: Attack, level: str, tmp_path: Path) -> None:
    found = attack("write_outside", OUTSIDE=tmp_path)
    left = [
        file
        for place in (tmp_path, *map(Path, ("/tmp", "/var/tmp", "/dev/shm", "/usr/local", "/root", "/")))
        if (file := place / "kbevolve-attack").exists()
    ]
    for file in left:
        file.unlink()
    _needs(level, "landlock")
    assert not left
    assert "written to []" in found.message


@pytest.mark.slow
def test_no_secret_is_read(attack: Attack, level: str, tmp_path: Path) -> None:
    (tmp_path / "archive.db").write_text("answers")
    found = attack("read_secrets", SECRET=tmp_path / "archive.db")
    assert "OPENAI_API_KEY" not in found.message
    _needs(level, "landlock")
    assert "found []" in found.message


@pytest.mark.slow
def test_there_is_no_network(attack: Attack, level: str) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        server.settimeout(0.2)
        found = attack("network", PORT=server.getsockname()[1])
        _needs(level, "landlock", "seccomp")
        assert "no connection" in found.message
        with pytest.raises(TimeoutError):
            server.accept()


@pytest.mark.slow
def test_the_judge_gets_no_signal(attack: Attack, level: str) -> None:
    found = attack("kill_the_judge")
    _needs(level, "landlock")
    assert "no signal" in found.message


def _needs(level: str, *parts: str) -> None:
    """Skip on a machine without these guards; `kbevolve doctor` reports them."""
    missing = [part for part in parts if part not in level]
    if missing:
        pytest.skip(f"the sandbox here is {level!r}, without {', '.join(missing)}")


def _running(marker: str) -> list[str]:
    lines = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                lines.append((entry / "cmdline").read_text())
            except OSError:
                continue
    return [line for line in lines if marker in line]
