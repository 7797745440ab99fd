"""What an evaluation holds has limits as a whole, however it is divided among files, processes and threads."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbevolve.archive.records import Verdict
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.rejection import Rejection
from kbevolve.evaluators.sandbox import process_table, usage
from kbevolve.evaluators.sandbox.forkserver import ForkServer
from kbevolve.evaluators.sandbox.process_table import ProcessTable
from kbevolve.evaluators.sandbox.shared_memory import SharedMemory
from kbevolve.evaluators.sandbox.usage import Allowance, TooMuch, check
from kbevolve.evaluators.sandbox.worker import Worker

CPU = find_device("cpu")
MB = 1 << 20
#: The limit of bytes in files, of bytes of memory, of descriptors and of files in these tests.
FILES, MEMORY, DESCRIPTORS, NAMES = 64 * MB, 768 * MB, 300, 3000

HELD = "import ctypes, mmap, os, threading, time\nkept, ends = [], os.pipe()\n"
WAIT = "\ntime.sleep(1.2)\n"
#: A helper says that it holds its part, and its parent waits for that.
SAY, LISTEN = "os.write(ends[1], b'x')", "\nos.read(ends[0], 1)\n"

#: Each part is below the limit.
ATTACKS = {
    "files": ("MB in files", "for i in range(3): open(f'f{i}', 'wb').write(bytes(30 << 20))"),
    "files-without-a-name": (
        "MB in files",
        "for i in range(3):\n"
        "    kept.append(open('f', 'wb', buffering=0))\n    os.remove('f')\n    kept[-1].write(bytes(30 << 20))",
    ),
    "temporary-files": (
        "MB in files",
        "for i in range(3):\n"
        "    kept.append(os.open('.', os.O_TMPFILE | os.O_RDWR, 0o600)); os.write(kept[-1], bytes(30 << 20))",
    ),
    "files-in-memory": (
        "MB in files",
        "for i in range(3): kept.append(os.memfd_create('x')); os.write(kept[-1], bytes(30 << 20))",
    ),
    "both": (
        "MB in files",
        "kept.append(os.memfd_create('x')); os.write(kept[-1], bytes(40 << 20))\n"
        "open('f', 'wb').write(bytes(40 << 20))",
    ),
    "files-of-a-helper": (
        "MB in files",
        "if os.fork() == 0:\n"
        "    for i in range(3): kept.append(os.memfd_create('x')); os.write(kept[-1], bytes(30 << 20))\n"
        f"    {SAY}\n    time.sleep(100){LISTEN}",
    ),
    "files-of-a-helper-without-its-first-thread": (
        "MB in files",
        "if os.fork() == 0:\n"
        "    for i in range(3): kept.append(os.memfd_create('x')); os.write(kept[-1], bytes(30 << 20))\n"
        "    threading.Thread(target=time.sleep, args=(100,)).start()\n"
        f"    {SAY}\n    ctypes.CDLL(None).pthread_exit(None){LISTEN}",
    ),
    "memory-of-helpers": (
        "MB of memory",
        "for i in range(4):\n"
        "    if os.fork() == 0:\n"
        f"        kept.append(b'x' * (240 << 20))\n        {SAY}\n        time.sleep(100){4 * LISTEN}",
    ),
    "shared-memory": (
        "MB of memory",
        "for i in range(6): kept.append(mmap.mmap(-1, 128 << 20)); kept[-1].write(b'x' * (128 << 20))",
    ),
    "descriptors": ("open files", "kept = [os.dup(0) for i in range(310)]"),
    "threads": (
        "threads",
        "for i in range(1100): threading.Thread(target=time.sleep, args=(100,), daemon=True).start()",
    ),
    "names": ("files and folders", "for i in range(3010): os.mkdir(f'd{i}')"),
    "deep-folders": ("cannot read", "for i in range(2100): os.mkdir('d'); os.chdir('d')\nos.chdir(os.environ['HOME'])"),
}
SLOW = ("names", "deep-folders", "memory-of-helpers")
#: Sources that must pass.
TWINS = {
    "files": "for i in range(3): open(f'f{i}', 'wb').write(bytes(10 << 20))",
    "files-one-after-another": ("for i in range(6):\n    open('f', 'wb').write(bytes(30 << 20))\n    os.remove('f')"),
    "a-sparse-file": "os.truncate(os.open('f', os.O_CREAT | os.O_RDWR), 1 << 30)",
    "a-file-in-memory": "kept.append(os.memfd_create('x')); os.write(kept[-1], bytes(40 << 20))",
    "memory": "import torch\nkept.append(torch.ones(32 << 20))",
    "threads": "for i in range(50): threading.Thread(target=time.sleep, args=(1,), daemon=True).start()",
    "memory-shared-with-helpers": (
        "kept.append(b'x' * (200 << 20))\nfor i in range(6):\n    if os.fork() == 0:\n        time.sleep(100)" + WAIT
    ),
    "a-helper": "import subprocess; subprocess.run(['true'], check=True)",
}


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "FILE_BYTES", FILES)
    monkeypatch.setattr(usage, "_MOST_DESCRIPTORS", DESCRIPTORS)
    monkeypatch.setattr(usage, "_MOST_FILES", NAMES)
    monkeypatch.setattr(usage, "_MOST_THREADS", 1000)


@pytest.fixture
def worker(fork_server: ForkServer) -> Iterator[Worker]:
    found = Worker(CPU, fork_server)
    found.wait_ready()
    found._allowance = replace(found._allowance, memory=MEMORY)
    yield found
    found.kill()


def load(worker: Worker, body: str) -> None:
    reply = worker.ask({"request": "import", "source": f"{HELD}{body}\nclass ModelNew:\n    pass\n"}, seconds=30)
    assert reply["ok"], reply
    worker.ask({"request": "nothing"}, seconds=10)


@pytest.mark.parametrize(
    "attack", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in ATTACKS]
)
def test_what_is_held_in_parts_is_stopped(worker: Worker, attack: str) -> None:
    words, body = ATTACKS[attack]
    with pytest.raises(Rejection) as caught:
        load(worker, body)
    assert caught.value.verdict is Verdict.CRASHED
    assert words in caught.value.message


def test_files_that_are_only_mapped_are_stopped(worker: Worker) -> None:
    with pytest.raises(Rejection, match="MB in files"):
        load(
            worker,
            "libc = ctypes.CDLL(None)\nlibc.mmap.restype = ctypes.c_void_p\n"
            "for i in range(3):\n"
            "    file = os.memfd_create('x')\n    os.write(file, bytes(30 << 20))\n"
            "    kept.append(libc.mmap(None, ctypes.c_size_t(4096), 1, 1, file, ctypes.c_long(0)))\n"
            "    os.close(file)",
        )


@pytest.mark.parametrize("twin", TWINS)
def test_what_an_honest_kernel_holds_passes(worker: Worker, twin: str) -> None:
    load(worker, TWINS[twin])


@pytest.mark.slow
def test_the_judges_own_memory_does_not_count(worker: Worker) -> None:
    shared = SharedMemory(CPU, 1 << 30)
    try:
        ticket, descriptors = shared.ticket()
        worker.ask({"request": "open", "ticket": ticket}, seconds=10, descriptors=descriptors)
        shared.memory.fill_(1)
        touch = "isinstance(x, torch.Tensor) and x.dim() and x.view(-1)[::4096].max()"
        load(worker, f"import gc, torch\nfor x in gc.get_objects():\n    {touch}")
    finally:
        shared.close()


def test_a_worker_is_checked_when_it_is_paused(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    load(worker, "def hold():\n    time.sleep(0.3)\n    kept.append(bytes(1))\nthreading.Thread(target=hold).start()")
    worker._allowance = replace(worker._allowance, memory=MB)
    worker._checked -= 1
    # A list that was read a moment ago may lack it.
    monkeypatch.setattr("kbevolve.evaluators.sandbox.worker.RECENT", ProcessTable(seconds=0.0))
    worker.pause()
    with pytest.raises(Rejection, match="MB of memory"):
        worker.ask({"request": "nothing"}, seconds=10)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["named", "nameless", "memory"]), st.integers(0, 24)), max_size=8))
@pytest.mark.slow
def test_the_sum_decides(tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[str, int]]) -> None:
    folder = tmp_path_factory.mktemp("held")
    (own,) = (process for process in process_table.processes() if process.pid == os.getpid())
    with ExitStack() as held:
        for number, (kind, size) in enumerate(parts):
            path = folder / str(number)
            file = held.enter_context(open(os.memfd_create("x") if kind == "memory" else path, "wb"))
            file.write(bytes(size * MB))
            file.flush()
            if kind == "nameless":
                path.unlink()
        allowed = Allowance(directory=folder, memory=1 << 50, visible=True)
        try:
            check([own], allowed, mapped=False)
        except TooMuch:
            assert sum(size for _, size in parts) > 63
        else:
            assert sum(size for _, size in parts) <= 64


def test_a_process_that_ends_meanwhile_is_no_error(tmp_path: Path) -> None:
    gone = process_table.Process(pid=2**22 + 1, parent=1, group=1, session=1, ended=False, threads=2)
    check([gone], Allowance(directory=tmp_path, memory=1, visible=True), mapped=True)
