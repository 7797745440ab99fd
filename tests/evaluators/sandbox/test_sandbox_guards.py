"""Real confined workers: hostile code fails, honest code works, and nothing is left behind."""

import contextlib
import os
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kbevolve.archive.records import Verdict
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.rejection import Rejection
from kbevolve.evaluators.sandbox import bubblewrap, process_table, usage
from kbevolve.evaluators.sandbox.worker import Worker
from kbevolve.evaluators.worker import landlock, seccomp
from kbevolve.evaluators.worker.channel import Message
from tests.evaluators.hostile import (
    FLOOD,
    FORK_BOMB,
    MEMORY_BOMB,
    SNOOPING,
    SPINNER,
    SURVIVOR,
    SYSTEM_CALL,
    SYSTEM_CALLS,
    TANGLE,
)

ROOT = Path(__file__).parents[3]
CPU = find_device("cpu")
KERNEL = "\nclass ModelNew:\n    pass\n"
#: Errors of a stopped attack: refused by the file system or the filter, or absent in a namespace.
STOPPED = {"PermissionError", "FileNotFoundError", "ProcessLookupError", "ConnectionRefusedError", "OSError"}

guarded = pytest.mark.skipif(
    not landlock.usable() or not seccomp.supported(), reason="this kernel has no Landlock or no known system calls"
)


@dataclass(frozen=True)
class Targets:
    """What attacks try to reach."""

    names: dict[str, str | int]
    secret: Path


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Targets]:
    home = tmp_path_factory.mktemp("home")
    secret = home / "archive.db"
    secret.write_text("the truth")
    (home / "folder").mkdir()
    abstract = f"kbevolve-test-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(home / "s"))
        unix.listen()
        with socket.socket(socket.AF_UNIX) as hidden, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams:
            datagrams.bind(str(home / "d"))
            hidden.bind("\0" + abstract)
            hidden.listen()
            yield Targets(
                names={
                    **{"secret": str(secret), "folder": str(home / "folder"), "socket": str(home / "s")},
                    **{"checkout": str(ROOT), "parent": os.getpid(), "abstract": abstract},
                    **{"port": tcp.getsockname()[1], "datagrams": str(home / "d")},
                    "private": next(path for path in ("/etc/shadow", "/etc/profile") if os.access(path, os.R_OK)),
                },
                secret=secret,
            )


def started(*, wrapped: bool = True) -> Worker:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", "a-secret-key")
        if not wrapped:
            patch.setattr(bubblewrap, "obstacle", lambda device_type: "switched off by a test")
        worker = Worker(CPU)
    worker.wait_ready()
    return worker


@pytest.fixture(scope="module", params=[pytest.param("with bubblewrap", marks=pytest.mark.slow), "without bubblewrap"])
def worker(request: pytest.FixtureRequest) -> Iterator[Worker]:
    wrapped = request.param == "with bubblewrap"
    if wrapped and bubblewrap.obstacle("cpu"):
        pytest.skip("bubblewrap does not work here")
    worker = started(wrapped=wrapped)
    yield worker
    worker.kill()


def load(worker: Worker, source: str, seconds: float = 20) -> Message:
    return worker.ask({"request": "import", "source": source + KERNEL}, seconds=seconds)


@pytest.mark.slow
def test_the_level_is_what_the_machine_offers(worker: Worker, request: pytest.FixtureRequest) -> None:
    expected = ["bubblewrap"] if "with bubblewrap" in request.node.name else []
    expected += [f"landlock {landlock.usable()}"] if landlock.usable() else []
    expected += ["seccomp"] if seccomp.supported() else []
    assert worker.sandbox == ", ".join([*expected, "limits"])


@guarded
@pytest.mark.parametrize("attack", SNOOPING)
def test_a_worker_reaches_nothing_around_it(worker: Worker, targets: Targets, attack: str) -> None:
    reply = load(worker, SNOOPING[attack].format(**targets.names))
    assert not reply["ok"]
    assert reply["type"] in STOPPED, reply
    assert targets.secret.read_text() == "the truth"


def test_the_same_attacks_succeed_without_guards(targets: Targets) -> None:
    """Otherwise their failure above would prove nothing."""
    harmless = {name: text for name, text in SNOOPING.items() if name not in {"truncates-a-file", "deletes-a-file"}}
    source = "\n".join(f"({name!r}, {text.format(**targets.names)!r})," for name, text in harmless.items())
    program = (
        f"failed = {{}}\nfor name, text in [{source}]:\n"
        "    try:\n        exec(text, {})\n"
        "    except Exception as error:\n        failed[name] = error\n"
        "import os\nos.path.exists('/dev/shm/kbevolve-test-note') and os.remove('/dev/shm/kbevolve-test-note')\n"
        "print(failed)\n"
    )
    with targets.secret.with_name("copy").open("w+") as kept:
        kept.write(targets.secret.read_text())
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            cwd=targets.secret.parent,
            start_new_session=True,
        )
        kept.seek(0)
        targets.secret.write_text(kept.read())
    assert done.stdout.strip() == "{}", done.stdout + done.stderr


@guarded
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers are those of x86_64")
@pytest.mark.parametrize("call", SYSTEM_CALLS)
def test_dangerous_system_calls_are_refused(worker: Worker, call: str) -> None:
    reply = load(worker, SYSTEM_CALL.format(call=SYSTEM_CALLS[call]))
    assert not reply["ok"]
    assert reply["type"] in {"PermissionError", "OSError"}


@guarded
def test_attributes_of_files_cannot_be_changed(worker: Worker) -> None:
    program = Path(sys.executable).resolve()
    before = program.stat()
    load(worker, f"import os; os.chmod({str(program)!r}, 0o777); os.utime({str(program)!r}, (0, 0))")
    assert (program.stat().st_mode, program.stat().st_mtime) == (before.st_mode, before.st_mtime)


def test_no_key_is_in_the_environment(worker: Worker) -> None:
    reply = load(worker, "import os; assert 'a-secret-key' in str(os.environ) + open('/proc/self/environ').read()")
    assert reply["type"] == "AssertionError"


def test_a_worker_writes_in_its_own_folders(worker: Worker) -> None:
    source = "import os\nfor place in ('.', os.environ['HOME'], os.environ['TMPDIR']):\n"
    source += "    open(place + '/a', 'w').write('x'); os.mkdir(place + '/d'); os.replace(place + '/a', place + '/d/b')"
    assert load(worker, source)["ok"]


def test_compilers_run_in_a_confined_worker(worker: Worker) -> None:
    source = (
        "import ctypes\nfrom torch.utils.cpp_extension import load\n"
        "open('seven.cpp', 'w').write('extern \"C\" int seven() { return 7; }')\n"
        "assert ctypes.CDLL(load('seven', ['seven.cpp'], is_python_module=False)).seven() == 7"
    )
    reply = worker.ask({"request": "import", "source": source + KERNEL}, seconds=20, build_seconds=60)
    assert reply["ok"], reply


@pytest.mark.slow
def test_torch_compile_works_in_a_confined_worker() -> None:
    compiling = started()
    source = (
        "import torch\nx = torch.randn(8, 8)\n"
        "assert torch.allclose(torch.compile(lambda x: x.exp() * 2 + x.sum(0))(x), x.exp() * 2 + x.sum(0), atol=1e-5)"
    )
    try:
        assert load(compiling, source, seconds=120)["ok"]
        assert compiling.processes == 1  # no pool of compilers remains
    finally:
        compiling.kill()


@guarded
@pytest.mark.slow
def test_a_helper_that_leaves_the_group_dies_with_its_worker(worker: Worker) -> None:
    # A new worker, because the fixture is shared.
    other = started(wrapped="bubblewrap" in worker.sandbox)
    directory = other._launched.directory
    try:
        assert other.processes == 1
        assert load(other, SURVIVOR)["ok"]
        assert other.processes == 2
    finally:
        other.kill()
    assert not process_table.members(other.pid)
    assert not directory.exists()


@pytest.mark.slow
def test_a_paused_worker_stops_and_can_be_killed(worker: Worker) -> None:
    other = started(wrapped="bubblewrap" in worker.sandbox)
    try:
        assert load(other, SPINNER)["ok"]
        other.pause()
        assert ticks_of(other, 0.2) == 0
        other.resume()
        assert ticks_of(other, 0.3) > 0
        assert load(other, "x = 1")["ok"]
        other.pause()
    finally:
        began = time.monotonic()
        other.kill()
    assert time.monotonic() - began < 3
    assert not process_table.members(other.pid)
    other.pause()  # no error, although nothing is there any more
    other.resume()
    other.kill()


@pytest.mark.slow
def test_a_fork_bomb_is_killed_completely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "MOST_PROCESSES", 256)  # more on a machine with many cores
    bomb = started()
    began = time.monotonic()
    try:
        with pytest.raises(Rejection) as caught:
            load(bomb, FORK_BOMB, seconds=60)
        assert caught.value.verdict == Verdict.CRASHED
        assert "processes" in caught.value.message
    finally:
        bomb.kill()
    assert time.monotonic() - began < 30
    assert not process_table.members(bomb.pid)


@pytest.mark.slow
def test_memory_output_and_nested_folders_have_limits() -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    greedy = started()
    directory = greedy._launched.directory
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        reply = load(greedy, MEMORY_BOMB.format(gigabytes=(memory >> 30) + 1))
        assert not reply["ok"]
        assert "memory" in str(reply["text"])
        assert load(greedy, FLOOD)["ok"]
        assert 10_000 < len(greedy.printed) < 100_000
        with contextlib.suppress(Rejection):  # the judge stops a worker whose folders it cannot read; root reads all
            assert load(greedy, TANGLE)["ok"]
    finally:
        greedy.kill()
    assert not directory.exists()
    assert len(os.listdir("/proc/self/fd")) == descriptors


def ticks_of(worker: Worker, seconds: float) -> int:
    """Processor time that the worker's group uses meanwhile, in ticks of 10 ms."""

    def used() -> int:
        total = 0
        for process in process_table.members(worker.pid):
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
        return total

    before = used()
    time.sleep(seconds)
    return used() - before
