"""What the scaling benchmark counts beside children and seconds."""

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks.throughput import scaling
from benchmarks.throughput.cores import BusyCores, compilers
from benchmarks.throughput.driver_lock import DriverLock, stacks
from benchmarks.throughput.mix import small_children
from benchmarks.throughput.scaling import Steady
from kbevolve.archive.records import Verdict
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.device.gate import DeviceGate
from kbevolve.evaluators.sandbox.launch import PROGRAM
from kbevolve.evaluators.sandbox.worker_pool import WorkerPool


def process(proc: Path, number: int, program: str, files: Sequence[str], stack: str) -> None:
    folder = proc / str(number)
    (folder / "fd").mkdir(parents=True)
    for place, file in enumerate(files):
        (folder / "fd" / str(place)).symlink_to(file)
    (folder / "cmdline").write_bytes(f"python\0{program}\0{{}}\0".encode())
    (folder / "stack").write_text(stack)


def test_only_workers_of_a_gpu_are_sampled(tmp_path: Path) -> None:
    lock = "[<0>] rmapiLockAcquire+0x1/0x2 [nvidia]"
    process(tmp_path, 7, str(PROGRAM), ["/dev/null", "/dev/nvidiactl", "/dev/nvidia3"], lock)
    process(tmp_path, 8, str(PROGRAM), ["/dev/nvidiactl"], lock)
    process(tmp_path, 9, "another", ["/dev/nvidia3"], lock)
    process(tmp_path, 10, str(PROGRAM), ["/dev/null"], "")
    (tmp_path / "driver").mkdir()
    assert sorted(stacks(tmp_path, {"/dev/nvidia3": "GPU-a"})) == [("", lock), ("GPU-a", lock)]


@pytest.mark.slow
def test_a_forked_worker_is_found_by_its_program() -> None:
    device = find_device("cpu")
    with closing(WorkerPool(device, DeviceGate(device))) as pool:
        worker = pool.take()
        try:
            command = Path(f"/proc/{worker.pid}/cmdline").read_bytes()
        finally:
            worker.kill()
    assert os.fsencode(PROGRAM) in command


def test_shares_of_the_samples(tmp_path: Path) -> None:
    lock = DriverLock(tmp_path)
    waits, holds = "rmapiLockAcquire [nvidia]", "rm_ioctl [nvidia]"
    lock.take([("GPU-a", waits), ("GPU-b", waits), ("GPU-b", holds)], {"GPU-a": False, "GPU-b": True})
    lock.take([("GPU-a", "futex_wait")], {"GPU-a": False, "GPU-b": True})
    assert lock.shares == {
        "samples": 2,
        "someone in the driver": 0.5,
        "someone waits": 0.5,
        "waiters": 1.0,
        "gpus": [
            {"waits": 0.5, "idle": 1.0, "idle and waits": 0.5},
            {"waits": 0.5, "idle": 0.0, "idle and waits": 0.0},
        ],
        "places": {"rmapiLockAcquire [nvidia]": 1.0, "rm_ioctl [nvidia]": 0.5, "futex_wait": 0.5},
    }


def test_steady_leaves_out_the_end(tmp_path: Path) -> None:
    """Two at a time, 0.1 s each, and a last one of 0.4 s: its lonely end does not count."""
    seconds = [0.1] * 6 + [0.4]
    steady = Steady()

    def evaluate(problem: Any, kernel: Any) -> Any:
        time.sleep(kernel.seconds)

    with ThreadPoolExecutor(2) as callers, steady.window() as timed:
        kernels = [cast(Any, SimpleNamespace(seconds=one)) for one in seconds]
        list(callers.map(timed(evaluate), [cast(Any, None)] * len(kernels), kernels))
    # Five end in 0.2 s, or four if the threads' order makes it so; in all they are 7 in 0.7 s.
    assert 3600 * 3 / 0.3 < steady.per_hour < 3600 * 7 / 0.2


@pytest.mark.parametrize("built", [False, True])
def test_children_are_built_by_other_judges_before(built: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[list[str]] = []

    class Fleet:
        width, device = 2, SimpleNamespace(description="a device")

        def __init__(self) -> None:
            judged.append([])

        def card(self, problem: Any) -> None:
            pass

        def evaluate(self, problem: Any, kernel: Any) -> Any:
            judged[-1].append(kernel.source)
            return SimpleNamespace(execution=SimpleNamespace(phases={}), verdict=Verdict.CORRECT, message="")

    monkeypatch.setattr(scaling, "find_judge_devices", lambda settings: ())
    monkeypatch.setattr(scaling, "open_judges", lambda devices, settings: nullcontext(Fleet()))
    mix = small_children()[:3]
    known = dict.fromkeys((child.problem for child in mix), cast(Any, None))
    found = scaling.measure(mix, known, device="cpu", judges=1, times=2, workers="local", connections=1, built=built)
    assert found["children"] == 6
    assert [sorted(one) for one in judged] == [sorted(judged[0])] * (1 + built)
    assert len(set(judged[0])) == 6


def test_busy_cores_are_those_of_this_process_and_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    stat = tmp_path / "stat"

    def at(seconds: int) -> str:
        cores = ((60, 20, 20), (0, 0, 100), (0, 50, 50))  # user, nice and idle ticks a second
        lines = [
            f"cpu{number} {u * seconds} {n * seconds} 0 {i * seconds} 0 0 0 0 0 0"
            for number, (u, n, i) in enumerate(cores)
        ]
        return "\n".join(["cpu 1 2 3 4", *lines, "intr 5", ""])

    stat.write_text(at(1))
    cores = BusyCores(stat)
    with cores:
        stat.write_text(at(11))
    assert cores.mean == {"own": 0.8, "others": 0.5}


def test_compilers_need_cores_of_their_own() -> None:
    with pytest.raises(SystemExit, match="as many cores that this process may not use"), compilers(1000):
        pass


def test_compilers_work_until_the_block_ends() -> None:
    before = os.sched_getaffinity(0)
    if len(before) < 2:
        pytest.skip("one core")
    os.sched_setaffinity(0, {min(before)})  # leaves them the others
    try:
        with compilers(1):
            patience = time.monotonic() + 20
            # One that was just started has yet to be moved.
            while len(other := cores_of(compiling())) != 1 or other & {min(before)}:
                assert time.monotonic() < patience
        while compiling():  # those that were killed end in a moment
            assert time.monotonic() < patience
    finally:
        os.sched_setaffinity(0, before)


def cores_of(processes: list[int]) -> set[int]:
    """The cores that these may use; some have ended since they were found."""
    found = set[int]()
    for pid in processes:
        with suppress(ProcessLookupError):
            found |= os.sched_getaffinity(pid)
    return found


def compiling() -> list[int]:
    """The processes that `compilers` of this test process started, which are in groups of their own."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            started = b"kbevolve-compilers-" in (folder / "cmdline").read_bytes()
            if started and "Z" not in (folder / "stat").read_text().rpartition(")")[2][:3]:
                found.append(int(folder.name))
        except OSError:
            continue
    return found
