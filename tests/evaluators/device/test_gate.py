"""Trying shares the device, timing has it alone, compiling releases it, and starting workers are paused."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from kbevolve.configs.errors import EvaluatorError
from kbevolve.evaluators.device import lock
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.device.gate import DeviceGate
from kbevolve.evaluators.judging.phases import WAITING, Phases
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("own_locks")

#: Seconds after which a thread that is not inside counts as waiting; and within which a thread must be inside.
SOON, TIMEOUT = 0.05, 20.0


@pytest.fixture
def gate() -> DeviceGate:
    return DeviceGate(find_device("cpu"))


def entering(gate: DeviceGate, kind: str, until: threading.Event) -> tuple[threading.Thread, threading.Event]:
    """A thread that enters and stays until `until` is set; the event that is set when it is inside."""
    inside = threading.Event()

    def go() -> None:
        with getattr(gate, kind)():
            inside.set()
            assert until.wait(TIMEOUT)

    thread = threading.Thread(target=go)
    thread.start()
    return thread, inside


def test_several_share_and_one_is_alone(gate: DeviceGate) -> None:
    out_first, out_second, out_alone = threading.Event(), threading.Event(), threading.Event()
    first, first_inside = entering(gate, "shared", out_first)
    second, second_inside = entering(gate, "shared", out_second)
    assert first_inside.wait(TIMEOUT)
    assert second_inside.wait(TIMEOUT)
    alone, alone_inside = entering(gate, "exclusive", out_alone)
    until(lambda: gate._waiting == 1)
    out_first.set()
    assert not alone_inside.wait(SOON), "alone while another thread shares"
    late, late_inside = entering(gate, "shared", out_alone)
    assert not late_inside.wait(SOON), "a waiting exclusive thread goes first"
    out_second.set()
    assert alone_inside.wait(TIMEOUT)
    assert not late_inside.wait(SOON), "shared while another thread is alone"
    out_alone.set()
    assert late_inside.wait(TIMEOUT)
    for thread in (first, second, alone, late):
        thread.join(TIMEOUT)
        assert not thread.is_alive()


def test_a_released_gate_is_free_and_is_entered_again_in_turn(gate: DeviceGate) -> None:
    compiled, out = threading.Event(), threading.Event()
    released, again = threading.Event(), threading.Event()
    compiler = Recorder()

    def compile_in_the_middle() -> None:
        with gate.shared():
            with gate.released(compiler):
                released.set()
                assert compiled.wait(TIMEOUT)
            again.set()

    thread = threading.Thread(target=compile_in_the_middle)
    thread.start()
    assert released.wait(TIMEOUT)
    alone, alone_inside = entering(gate, "exclusive", out)
    assert alone_inside.wait(TIMEOUT), "the gate is free while the other thread compiles"
    assert compiler.calls[-2:] == ["stop", "wait until stopped"], "its compiler is paused meanwhile"
    compiled.set()
    assert not again.wait(SOON), "inside again while another thread is alone"
    out.set()
    assert again.wait(TIMEOUT)
    thread.join(TIMEOUT)
    alone.join(TIMEOUT)


def test_the_gate_is_reentrant(gate: DeviceGate) -> None:
    with gate.shared(), gate.shared() as waited:
        assert waited == 0
        with pytest.raises(RuntimeError, match="leave the gate first"), gate.exclusive():
            pytest.fail("it would wait for itself")
    with gate.exclusive(), gate.exclusive(), gate.shared(), gate.released(Recorder()):
        entered = threading.Event()
        thread = threading.Thread(target=lambda: _touch(gate, entered))
        thread.start()
        assert not entered.wait(SOON), "no other thread may enter, whatever is entered or released inside"
    assert entered.wait(TIMEOUT)
    thread.join(TIMEOUT)


def _touch(gate: DeviceGate, entered: threading.Event) -> None:
    with gate.shared():
        entered.set()


def test_an_error_inside_leaves_the_gate_open(gate: DeviceGate) -> None:
    for enter in (gate.shared, gate.exclusive):
        with pytest.raises(ZeroDivisionError), enter():
            raise ZeroDivisionError
    with gate.exclusive():
        pass


def test_an_exclusive_thread_is_always_alone(gate: DeviceGate) -> None:
    inside, seen = [0, 0], []
    lock = threading.Lock()

    def visit(kind: int, enter: Callable[[], object]) -> None:
        for _ in range(50):
            with enter():  # type: ignore[attr-defined]
                with lock:
                    inside[kind] += 1
                    seen.append(tuple(inside))
                time.sleep(0)
                with lock:
                    inside[kind] -= 1

    with ThreadPoolExecutor(8) as pool:
        for number in range(8):
            pool.submit(visit, int(number < 3), gate.exclusive if number < 3 else gate.shared).add_done_callback(
                lambda done: done.result()
            )
    assert len(seen) == 400
    assert all(alone == 0 or (alone == 1 and sharing == 0) for sharing, alone in seen)


def test_waiting_is_its_own_phase(gate: DeviceGate, monkeypatch: pytest.MonkeyPatch) -> None:
    out, waits, wait_for = threading.Event(), threading.Event(), gate._changed.wait_for

    def let_in() -> None:
        assert waits.wait(TIMEOUT)
        time.sleep(0.2)
        out.set()

    alone, inside = entering(gate, "exclusive", out)
    assert inside.wait(TIMEOUT)
    monkeypatch.setattr(gate._changed, "wait_for", lambda holds: waits.set() or wait_for(holds))
    threading.Thread(target=let_in).start()
    phases, began = Phases(gate), time.monotonic()
    with phases("trials"), gate.shared() as waited:
        time.sleep(0.05)
    whole = time.monotonic() - began
    alone.join(TIMEOUT)
    assert waited >= 0.2
    assert gate.waited == waited
    assert phases.seconds[WAITING] == pytest.approx(waited)
    assert 0.05 <= phases.seconds["trials"] <= whole - waited
    assert list(phases.seconds) == ["trials", WAITING]


class Recorder:
    """Records what `in_background` does to it."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def pause(self, *, wait: bool = True) -> None:
        self.calls.append("wait until stopped" if wait else "stop")

    def resume(self) -> None:
        self.calls.append("resume")


def test_a_background_process_is_paused_and_not_waited_for(gate: DeviceGate) -> None:
    first, second = Recorder(), Recorder()
    with ExitStack() as starting:
        with gate.shared():
            starting.enter_context(gate.in_background(first))
            starting.enter_context(gate.in_background(second))
        assert first.calls == ["stop", "resume"], "the first process is paused until the device can be shared"
        first.calls.clear()
        with gate.shared():
            assert first.calls == second.calls == [], "it runs while others share the device"
        with gate.exclusive():
            assert first.calls == second.calls == ["stop", "wait until stopped"]
        assert first.calls == second.calls == ["stop", "wait until stopped", "resume"]
    with gate.exclusive():
        assert len(first.calls) == 3, "it has left"


def test_a_process_that_joins_while_a_thread_is_alone_is_paused(gate: DeviceGate) -> None:
    joined, out = threading.Event(), threading.Event()
    out.set()
    with gate.exclusive(), ThreadPoolExecutor(1) as threads:
        late = Recorder()

        def join() -> None:
            with gate.in_background(late):
                joined.set()
                assert out.wait(TIMEOUT)

        out.clear()
        threads.submit(join)
        assert joined.wait(TIMEOUT), "neither waits for the other"
        assert late.calls == ["stop"]
        with gate.exclusive():
            pass
        assert late.calls == ["stop"], "the thread is still alone"
        out.set()
    with gate.shared():
        assert late.calls == ["stop", "resume"]


def test_the_first_background_process_is_paused_while_another_process_has_the_device(gate: DeviceGate) -> None:
    other, first, out = DeviceGate(find_device("cpu")), Recorder(), threading.Event()
    alone, inside = entering(other, "exclusive", out)
    assert inside.wait(TIMEOUT)
    with ThreadPoolExecutor(1) as threads:
        through = threads.submit(lambda: gate.in_background(first).__enter__())
        until(lambda: bool(first.calls))
        time.sleep(SOON)
        assert first.calls == ["stop"]
        assert not through.done()
        out.set()
        through.result(TIMEOUT)
    alone.join(TIMEOUT)
    assert first.calls == ["stop", "resume"]


def test_a_process_that_leaves_while_it_is_paused_is_resumed(gate: DeviceGate) -> None:
    starting, one = ExitStack(), Recorder()
    with gate.shared():
        starting.enter_context(gate.in_background(one))
    one.calls.clear()
    with gate.exclusive():
        starting.close()
    assert one.calls == ["stop", "wait until stopped", "resume"]


def test_background_processes_are_paused_for_other_judges_too(gate: DeviceGate) -> None:
    """File locks belong to open files, so a second gate of this process acts as one of another process."""
    other, out, first, second = DeviceGate(find_device("cpu")), threading.Event(), Recorder(), Recorder()
    with gate.in_background(first):
        first.calls.clear()
        alone, inside = entering(other, "exclusive", out)
        assert inside.wait(TIMEOUT)
        assert first.calls == ["stop", "wait until stopped"]
        with gate.in_background(second):
            assert second.calls == ["stop"]
            out.set()
            alone.join(TIMEOUT)
            until(lambda: first.calls[-1] == second.calls[-1] == "resume")
            out = threading.Event()
            alone, inside = entering(other, "exclusive", out)
            assert inside.wait(TIMEOUT), "it is paused a second time"
            out.set()
            with gate.exclusive():
                assert first.calls[-1] == second.calls[-1] == "wait until stopped"
            until(lambda: first.calls[-1] == second.calls[-1] == "resume")
    alone.join(TIMEOUT)
    with other.exclusive():
        pass  # nothing holds the lock


def test_a_process_that_leaves_while_another_judge_has_the_device_is_resumed(gate: DeviceGate) -> None:
    other, out, one, starting = DeviceGate(find_device("cpu")), threading.Event(), Recorder(), ExitStack()
    starting.enter_context(gate.in_background(one))
    alone, inside = entering(other, "exclusive", out)
    assert inside.wait(TIMEOUT)
    starting.close()
    assert one.calls[-1] == "wait until stopped"
    out.set()
    until(lambda: one.calls[-1] == "resume")
    alone.join(TIMEOUT)
    with other.exclusive():
        pass


@pytest.mark.parametrize("kind", ["shared", "exclusive"])
def test_a_thread_that_waits_for_another_process_gives_up_when_the_gate_is_closed(gate: DeviceGate, kind: str) -> None:
    device, out = find_device("cpu"), threading.Event()
    other, third = DeviceGate(device), DeviceGate(device)
    alone, inside = entering(other, "exclusive", out)
    assert inside.wait(TIMEOUT)
    assert lock.is_taken(device)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(lambda: getattr(gate, kind)().__enter__())
        time.sleep(SOON)
        assert not waiting.done()
        gate.close()
        with pytest.raises(EvaluatorError, match="closed while another process measured"):
            waiting.result(TIMEOUT)
    out.set()
    alone.join(TIMEOUT)
    with third.exclusive():  # a thread that has given up does not keep the lock
        assert lock.is_taken(device)
    until(lambda: not lock.is_taken(device))  # that thread's helper may have it for a moment
