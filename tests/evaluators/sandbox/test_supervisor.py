"""Nothing that a worker or a compiler started outlives its evaluation or its judge, however either ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.sandbox import bubblewrap, process_table
from kbevolve.evaluators.sandbox.worker import Worker
from tests.evaluators.sandbox.run_in_worker import run_in_worker

ROOT = Path(__file__).parents[3]

#: Becomes the parent of all orphans below it, starts a judge, kills it, and waits until no process is left: a mark that
#: no process can shed. It gets the judge's program, a signal and seconds; the judge prints a line first.
WATCHER = """
import os, subprocess, sys, time
from kbevolve.evaluators.worker.supervisor import adopt_orphans
adopt_orphans()
judge = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE)
assert judge.stdout.readline().strip() == b"ready"
time.sleep(float(sys.argv[3]))
judge.send_signal(int(sys.argv[2]))
try:
    while True:
        os.waitpid(-1, 0)
except ChildProcessError:
    print("nothing is left")
"""

#: Helpers that shed what could show whose they are.
ORPHANS = """
import ctypes, os, subprocess, threading, time
libc = ctypes.CDLL(None)
def double_fork():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.setpgid(0, 0)
            os.chdir("/")
            libc.prctl(15, b"kworker/0:1", 0, 0, 0)
            libc.prctl(36, 0, 0, 0, 0)
            libc.prctl(1, 0, 0, 0, 0)
            os.closerange(0, 4096)
            os.execve("/bin/sleep", ["sleep", "1000"], {})
        os._exit(0)
def first_thread_ends():
    if os.fork() == 0:
        threading.Thread(target=time.sleep, args=(1000,)).start()
        libc.pthread_exit(None)
def vfork():
    subprocess.Popen(["sleep", "1000"], env={}, cwd="/", start_new_session=True)
def untraced():
    if libc.syscall(56, 0x00800000 | 17, 0, 0, 0, 0) == 0:
        time.sleep(1000)
for start in (double_fork, first_thread_ends, vfork, untraced):
    start()
time.sleep(0.3)
"""

JUDGE = f"""
import sys, time
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.sandbox import bubblewrap, launch
from kbevolve.evaluators.sandbox.worker import Worker
if not WRAPPED:
    bubblewrap.obstacle = lambda device_type: "switched off by a test"
device = find_device("DEVICE")
server = launch.open_fork_server(device) if FORKED else None
worker = Worker(device, server)
worker.wait_ready()
assert worker.ask({{"request": "import", "source": {ORPHANS!r} + "\\nclass ModelNew: pass\\n"}}, seconds=20)["ok"]
if PAUSED:
    worker.pause()
print("ready", flush=True)
time.sleep(1000)
"""

BUILDER = """
from kbevolve.evaluators.builds.sandboxed_compiler import run, build_directory
from kbevolve.evaluators.sandbox import bubblewrap
bubblewrap.obstacle("cpu")
if not {wrapped}:
    bubblewrap.obstacle = lambda device_type: "switched off by a test"
with build_directory() as directory:
    print("ready", flush=True)
    run(["sh", "-c", "(setsid sleep 1000 &) ; cd /; exec env -i sleep 1000"], directory, seconds=60)
"""

WRAPPED = [
    False,
    pytest.param(True, marks=pytest.mark.skipif(bubblewrap.obstacle("cpu") is not None, reason="no bubblewrap")),
]


def judge(*, wrapped: bool, forked: bool, paused: bool, device: str = "cpu") -> str:
    """The program of a judge whose worker runs `ORPHANS`; `wrapped`: in bubblewrap, where that works."""
    program = JUDGE.replace("WRAPPED", str(wrapped)).replace("DEVICE", device)
    return program.replace("FORKED", str(forked)).replace("PAUSED", str(paused))


def killed(program: str, number: signal.Signals, seconds: float, folder: Path) -> None:
    """Kill a judge after so many seconds; returns when nothing that it started is left."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder)}
    command = [sys.executable, "-c", WATCHER, program, str(int(number)), str(seconds)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "nothing is left", done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("wrapped", WRAPPED)
@pytest.mark.parametrize(
    ("number", "forked", "paused"),
    [(signal.SIGKILL, True, False), (signal.SIGBUS, True, True), (signal.SIGKILL, False, True)],
)
def test_a_killed_judge_leaves_no_process(
    wrapped: bool, number: signal.Signals, forked: bool, paused: bool, tmp_path: Path
) -> None:
    killed(judge(wrapped=wrapped, forked=forked, paused=paused), number, 0, tmp_path)


@pytest.mark.parametrize("wrapped", WRAPPED)
@pytest.mark.parametrize("seconds", [0, 0.003, 0.01, 0.02, 0.04, 0.08, 0.3])
def test_a_killed_builder_leaves_no_compiler(wrapped: bool, seconds: float, tmp_path: Path) -> None:
    killed(BUILDER.format(wrapped=wrapped), signal.SIGKILL, seconds, tmp_path)


@pytest.mark.slow
def test_helpers_that_shed_everything_die_with_their_worker() -> None:
    worker = Worker(find_device("cpu"))
    try:
        worker.wait_ready()
        run_in_worker(worker, ORPHANS)
        assert worker.processes == 5
    finally:
        worker.kill()
    assert not process_table.members(worker.pid)
