"""Processes are found by group and session, and counted once for all threads."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kbevolve.evaluators.sandbox import process_table


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
        (found,) = process_table.members(child.pid)
        assert (found.pid, found.parent, found.ended) == (child.pid, os.getpid(), False)
    finally:
        process_table.kill([found])
        deadline = time.monotonic() + 10
        while process_table.members(child.pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not process_table.members(child.pid)  # ended, although its exit was not collected
        child.wait()


def test_one_reading_serves_all_threads_for_half_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readings = 0
    read = process_table.processes

    def counted() -> Iterator[process_table.Process]:
        nonlocal readings
        readings += 1
        return read()

    monkeypatch.setattr(process_table, "processes", counted)
    table = process_table.ProcessTable(seconds=0.5)
    child = sleeper(tmp_path, {})
    try:
        began = time.monotonic()
        with ThreadPoolExecutor(8) as threads:
            counts = list(threads.map(lambda _: len(table.members(child.pid)), range(200)))
        assert set(counts) == {1}
        assert readings <= 1 + (time.monotonic() - began) / 0.5
    finally:
        child.kill()
        child.wait()
    time.sleep(0.5)
    assert not table.members(child.pid)


def test_a_group_exists_until_the_exit_of_its_last_member_is_collected(tmp_path: Path) -> None:
    child = sleeper(tmp_path, {})
    assert process_table.has_group(child.pid)
    child.kill()
    child.wait()
    assert not process_table.has_group(child.pid)


def test_a_process_whose_first_thread_has_exited_lives_and_can_be_stopped() -> None:
    code = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(100,)).start()
print(1, flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""
    child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stdout=subprocess.PIPE)
    assert child.stdout is not None
    try:
        child.stdout.readline()
        deadline = time.monotonic() + 5
        while process_table._state(child.pid) != "Z" and time.monotonic() < deadline:
            time.sleep(0.01)
        (found,) = process_table.members(child.pid)
        assert (found.ended, found.threads) == (False, 2)
        assert not process_table.is_stopped(child.pid)
        os.killpg(child.pid, signal.SIGSTOP)
        while not process_table.is_stopped(child.pid):
            assert time.monotonic() < deadline
        os.killpg(child.pid, signal.SIGKILL)
        child.wait(5)
        assert not process_table.members(child.pid)
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this kernel does not report waiting times")
def test_two_processes_that_share_a_core_wait_for_each_other(tmp_path: Path) -> None:
    core = min(os.sched_getaffinity(0))
    code = f"""
import os, time
os.sched_setaffinity(0, [{core}])
os.fork()
print(1, flush=True)
while True:
    pass
"""
    pair = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stdout=subprocess.PIPE)
    assert pair.stdout is not None
    try:
        pair.stdout.readline()
        pair.stdout.readline()
        before, began = process_table.processor_time(pair.pid), time.monotonic()
        time.sleep(1.0)
        after, seconds = process_table.processor_time(pair.pid), time.monotonic() - began
    finally:
        os.killpg(pair.pid, signal.SIGKILL)
        pair.wait()
        pair.stdout.close()
    spent, waited = after.spent - before.spent, after.waited - before.waited
    assert spent < 1.2 * seconds
    # Of two on one core one always waits, and both when another process has it.
    assert 1.5 * seconds < spent + waited < 2.2 * seconds


@pytest.mark.slow
def test_a_process_stopped_in_vfork_counts_as_stopped(tmp_path: Path) -> None:
    """One in 25 is stopped in vfork, where a parent cannot be stopped while its child is."""
    code = "import subprocess\nwhile True: subprocess.run(['true'], capture_output=True)"
    starting = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, start_new_session=True)
    try:
        time.sleep(0.3)
        for number in range(400):
            os.killpg(starting.pid, signal.SIGSTOP)
            deadline = time.monotonic() + 2.0
            while not process_table.is_stopped(starting.pid):
                assert time.monotonic() < deadline, f"stop {number}"
                time.sleep(0)
            os.killpg(starting.pid, signal.SIGCONT)
            time.sleep(0.0003 + 0.0001 * (number % 50))
    finally:
        os.killpg(starting.pid, signal.SIGKILL)
        starting.wait()
