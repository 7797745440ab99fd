"""Forked workers are confined as started ones are, and end with their judge as those do."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kbevolve.archive.records import Verdict
from kbevolve.configs.errors import EvaluatorError
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.rejection import Rejection
from kbevolve.evaluators.sandbox import bubblewrap, directories, launch, process_table
from kbevolve.evaluators.sandbox.forkserver import ForkServer
from kbevolve.evaluators.sandbox.worker import Worker
from kbevolve.evaluators.worker import landlock
from tests.evaluators.sandbox.run_in_worker import KERNEL, run_in_worker
from tests.evaluators.sandbox.serving import serving

CPU = find_device("cpu")
#: Seconds after which a test gives up waiting.
TIMEOUT = 20.0

pytestmark = pytest.mark.skipif(
    bubblewrap.obstacle("cpu") is None and not landlock.usable(), reason="each worker needs its own bubblewrap here"
)


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    found = launch.open_fork_server(CPU)
    assert found is not None
    yield found
    found.close()
    directories.remove(found.directory)
    assert not found.directory.exists()


@pytest.fixture
def worker(fork_server: ForkServer) -> Iterator[Worker]:
    found = Worker(CPU, fork_server)
    found.wait_ready()
    yield found
    found.kill()


@pytest.mark.slow
def test_a_forked_worker_is_confined_like_a_started_one(worker: Worker) -> None:
    started = Worker(CPU)
    started.wait_attached()
    started.kill()
    assert worker.sandbox == started.sandbox
    assert worker.processes == 1


def test_each_forked_worker_has_its_own_directory_environment_and_session(fork_server: ForkServer) -> None:
    seen = []
    for _ in range(2):
        worker = Worker(CPU, fork_server)
        worker.wait_ready()
        body = (
            "import os, tempfile\n"
            "print(os.environ['HOME'], os.environ['TMPDIR'], os.getcwd(), tempfile.gettempdir(), "
            "os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid())"
        )
        home, scratch, work, temporary, *own = run_in_worker(worker, body).split()
        assert own == ["True", "True"]
        assert Path(home).parent == Path(scratch).parent == Path(work).parent
        assert temporary == scratch
        seen.append(home)
        worker.kill()
        assert not Path(home).exists()
    assert seen[0] != seen[1]


@pytest.mark.slow
def test_the_time_of_a_pause_counts_against_no_limit(worker: Worker) -> None:
    with ThreadPoolExecutor(1) as thread:
        source = f"import time\ntime.sleep(0.5){KERNEL}"
        asked = thread.submit(worker.ask, {"request": "import", "source": source}, seconds=1.5)
        time.sleep(0.1)
        worker.pause()
        time.sleep(2.5)
        assert not asked.done(), "it is paused"
        worker.resume()
        assert asked.result(20)["ok"]


def test_a_worker_cannot_reach_its_siblings_or_its_fork_server(fork_server: ForkServer, worker: Worker) -> None:
    sibling = Worker(CPU, fork_server)
    sibling.wait_ready()
    try:
        home = run_in_worker(sibling, "import os\nopen('secret', 'w').write('x')\nprint(os.getcwd())")
        body = f"""
import os, signal
for name in ({home!r} + "/secret", {str(fork_server.directory)!r} + "/home/x"):
    try:
        open(name, "a").write("y")
        print("wrote", name)
    except OSError:
        pass
for pid in (os.getppid(), *(int(name) for name in os.listdir("/proc") if name.isdigit())):
    if pid != os.getpid():
        for act in (lambda: os.kill(pid, signal.SIGKILL), lambda: open(f"/proc/{{pid}}/mem", "rb").read(1)):
            try:
                act()
                print("reached", pid)
            except OSError:
                pass
print("done")
"""
        assert run_in_worker(worker, body) == "done"
        assert run_in_worker(sibling, "import os\nprint('alive')").endswith("alive")
    finally:
        sibling.kill()
    assert fork_server.alive


def test_exit_codes_and_signals_are_reported(fork_server: ForkServer) -> None:
    for body, words in (
        ("import os\nos._exit(3)", "exit code 3"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "sigsegv"),
    ):
        worker = Worker(CPU, fork_server)
        worker.wait_ready()
        with pytest.raises(Rejection) as caught:
            run_in_worker(worker, body)
        worker.kill()
        assert caught.value.verdict is Verdict.CRASHED
        assert words in caught.value.message.lower()


def test_a_paused_worker_stops_and_continues(worker: Worker) -> None:
    worker.pause()
    state = Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()[0]
    assert state == "T"
    worker.resume()
    assert run_in_worker(worker, "print('on')") == "on"


def test_a_process_forked_during_a_pause_is_resumed(worker: Worker) -> None:
    """One in forty forks that take milliseconds gets the SIGSTOP of its group and misses the SIGCONT."""
    child = "if not (pid := os.fork()):\n    time.sleep(1)\n    os._exit(0)\n"
    forks = f"import os, time\n{child}os.waitpid(pid, 0)\nprint('on')"
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(run_in_worker, worker, forks)
        patience = time.monotonic() + TIMEOUT
        while len(family := [process.pid for process in process_table.members(worker.pid)]) < 2:
            assert time.monotonic() < patience
        worker.pause()
        worker.resume()
        os.kill(max(family), signal.SIGSTOP)
        assert asked.result(TIMEOUT) == "on"


def test_a_killed_worker_leaves_nothing(fork_server: ForkServer) -> None:
    before = len(os.listdir("/proc/self/fd"))
    worker = Worker(CPU, fork_server)
    worker.wait_ready()
    pid = worker.pid
    worker.kill()
    worker.kill()
    assert not Path(f"/proc/{pid}").exists()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_fork_that_fails_ends_neither_server_nor_workers(
    fork_server: ForkServer, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import os, sys\n"
        "from kbevolve.evaluators.worker import forkserver\n"
        "def fork():\n"
        "    raise BlockingIOError(11, 'Resource temporarily unavailable')\n"
        "os.fork, forkserver._import_all = fork, lambda device: None\n"
        "forkserver.serve_forks(int(sys.argv[1]), device='cpu', inductor=False)\n"
    )
    with serving(code) as channel:
        for _ in range(2):
            channel.send({"fork": {}}, (0, 0))
            answer = channel.receive()[0]
            assert "temporarily unavailable" in answer["failed"]
    monkeypatch.setattr(fork_server, "_ask", lambda *_: answer)
    with pytest.raises(EvaluatorError, match="temporarily unavailable"):
        Worker(CPU, fork_server)
    assert worker.alive


def test_an_exit_is_noticed_at_once_although_a_helper_holds_the_connection(worker: Worker) -> None:
    started = time.monotonic()
    with pytest.raises(Rejection, match="exit code 3"):
        run_in_worker(worker, "import os, time\nif not os.fork():\n    time.sleep(60)\nos._exit(3)", seconds=30.0)
    assert time.monotonic() - started < 10


def test_two_threads_that_wait_for_a_worker_close_its_handle_once(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, closed = worker._launched.process, []
    handle = process._handle
    real = os.close

    def close(descriptor: int) -> None:
        time.sleep(0.05)
        closed.append(descriptor)
        real(descriptor)

    monkeypatch.setattr("kbevolve.evaluators.sandbox.forkserver.os.close", close)
    with ThreadPoolExecutor(3) as threads:
        codes = [threads.submit(process.wait) for _ in range(3)]
        worker.end()
        assert {code.result() for code in codes} == {-signal.SIGKILL}
    assert closed.count(handle) == 1


def test_a_late_answer_is_not_taken_for_the_next_one(fork_server: ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Worker(CPU, fork_server)
    first.wait_ready()
    monkeypatch.setattr("kbevolve.evaluators.sandbox.forkserver._FORK_SECONDS", 0.5)
    ours, theirs = socket.socketpair()
    os.killpg(fork_server._process.pid, signal.SIGSTOP)
    try:
        with ours, pytest.raises(EvaluatorError, match="did not start"):
            fork_server.fork({"confinement": {}}, {}, fork_server.directory, ours, theirs, theirs.fileno())
    finally:
        theirs.close()
        os.killpg(fork_server._process.pid, signal.SIGCONT)
    monkeypatch.undo()
    first.end()
    assert first._launched.process.wait() == -signal.SIGKILL
    first.kill()
    second = Worker(CPU, fork_server)
    second.wait_ready()
    assert run_in_worker(second, "print('well')") == "well"
    second.kill()


def test_many_workers_at_once(fork_server: ForkServer) -> None:
    def serve(number: int) -> str:
        worker = Worker(CPU, fork_server)
        worker.wait_ready()
        try:
            return run_in_worker(worker, f"print({number})")
        finally:
            worker.kill()

    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(serve, range(12))) == [str(number) for number in range(12)]


@pytest.mark.slow
def test_fork_server_and_workers_die_with_a_killed_judge(tmp_path: Path) -> None:
    program = tmp_path / "judge.py"
    program.write_text(
        "import time\n"
        "from kbevolve.evaluators.device.devices import find_device\n"
        "from kbevolve.evaluators.sandbox import launch\n"
        "from kbevolve.evaluators.sandbox.worker import Worker\n"
        "device = find_device('cpu')\n"
        "fork_server = launch.open_fork_server(device)\n"
        "worker = Worker(device, fork_server)\n"
        "worker.wait_ready()\n"
        "print(worker.pid, fork_server._process.pid, flush=True)\n"
        "time.sleep(100)\n"
    )
    root = Path(__file__).parents[3]
    judge = subprocess.Popen(
        [sys.executable, str(program)], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(root)}
    )
    try:
        assert judge.stdout is not None
        pids = [int(word) for word in judge.stdout.readline().split()]
        assert len(pids) == 2
        assert all(_lives(pid) for pid in pids)
        judge.kill()
        judge.wait()
        for _ in range(100):
            if not any(_lives(pid) for pid in pids):
                break
            time.sleep(0.05)
        assert not any(_lives(pid) for pid in pids)
    finally:
        judge.kill()
        judge.wait()
        if judge.stdout is not None:
            judge.stdout.close()
        directories.remove_stale()


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
