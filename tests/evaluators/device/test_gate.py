"""Who tries shares the device, who times has it alone, and who compiles steps back."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.device.gate import DeviceGate
from kbevolve.evaluators.judging.phases import WAITING, Phases

#: Seconds after which a thread that has not come through is taken for waiting; and in which it must have.
SOON, AT_LAST = 0.05, 20.0


@pytest.fixture
def gate() -> DeviceGate:
    return DeviceGate(find_device("cpu"))


def passing(gate: DeviceGate, kind: str, until: threading.Event) -> tuple[threading.Thread, threading.Event]:
    """A thread that enters and stays until it is told; the event tells that it is inside."""
    inside = threading.Event()

    def go() -> None:
        with getattr(gate, kind)():
            inside.set()
            assert until.wait(AT_LAST)

    thread = threading.Thread(target=go)
    thread.start()
    return thread, inside


def test_several_share_and_one_is_alone(gate: DeviceGate) -> None:
    out_first, out_second, out_alone = threading.Event(), threading.Event(), threading.Event()
    first, first_inside = passing(gate, "shared", out_first)
    second, second_inside = passing(gate, "shared", out_second)
    assert first_inside.wait(AT_LAST)
    assert second_inside.wait(AT_LAST)
    alone, alone_inside = passing(gate, "exclusive", out_alone)
    out_first.set()
    assert not alone_inside.wait(SOON), "alone beside the second"
    late, late_inside = passing(gate, "shared", out_alone)
    assert not late_inside.wait(SOON), "who wants to be alone goes before who comes later"
    out_second.set()
    assert alone_inside.wait(AT_LAST)
    assert not late_inside.wait(SOON), "beside one who is alone"
    out_alone.set()
    assert late_inside.wait(AT_LAST)
    for thread in (first, second, alone, late):
        thread.join(AT_LAST)
        assert not thread.is_alive()


def test_who_compiles_steps_back_and_waits_for_his_turn(gate: DeviceGate) -> None:
    compiled, out = threading.Event(), threading.Event()
    released, again = threading.Event(), threading.Event()

    def compile_in_the_middle() -> None:
        with gate.shared():
            with gate.released():
                released.set()
                assert compiled.wait(AT_LAST)
            again.set()

    thread = threading.Thread(target=compile_in_the_middle)
    thread.start()
    assert released.wait(AT_LAST)
    alone, alone_inside = passing(gate, "exclusive", out)
    assert alone_inside.wait(AT_LAST), "nobody is in its way while the other compiles"
    compiled.set()
    assert not again.wait(SOON), "it must not touch the device beside one who is alone"
    out.set()
    assert again.wait(AT_LAST)
    thread.join(AT_LAST)
    alone.join(AT_LAST)


def test_who_is_inside_may_pass_again(gate: DeviceGate) -> None:
    with gate.shared(), gate.shared() as waited:
        assert waited == 0
        with pytest.raises(RuntimeError, match="leave the gate first"), gate.exclusive():
            pytest.fail("it would wait for itself")
    with gate.exclusive(), gate.exclusive(), gate.shared(), gate.released():
        entered = threading.Event()
        thread = threading.Thread(target=lambda: _touch(gate, entered))
        thread.start()
        assert not entered.wait(SOON), "alone is alone, whatever is entered or released inside"
    assert entered.wait(AT_LAST)
    thread.join(AT_LAST)


def _touch(gate: DeviceGate, entered: threading.Event) -> None:
    with gate.shared():
        entered.set()


def test_an_error_inside_leaves_the_gate_open(gate: DeviceGate) -> None:
    for enter in (gate.shared, gate.exclusive):
        with pytest.raises(ZeroDivisionError), enter():
            raise ZeroDivisionError
    with gate.exclusive():
        pass


def test_nobody_is_ever_beside_one_who_is_alone(gate: DeviceGate) -> None:
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
    assert all(alone == 0 or (alone == 1 and beside == 0) for beside, alone in seen)


def test_waiting_is_a_phase_of_its_own(gate: DeviceGate) -> None:
    out = threading.Event()
    alone, inside = passing(gate, "exclusive", out)
    assert inside.wait(AT_LAST)
    threading.Timer(0.2, out.set).start()
    phases = Phases(gate)
    with phases("trials"), gate.shared() as waited:
        time.sleep(0.05)
    alone.join(AT_LAST)
    assert waited > 0.1
    assert gate.waited == waited
    assert phases.seconds[WAITING] == pytest.approx(waited)
    assert 0.05 <= phases.seconds["trials"] < waited
    assert list(phases.seconds) == ["trials", WAITING]


class Standing:
    """What `aside` stops and lets go on, in order."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def pause(self, *, wait: bool = True) -> None:
        self.told.append("stand" if wait else "stop")

    def resume(self) -> None:
        self.told.append("go")


def test_who_stands_aside_is_stopped_and_not_waited_for(gate: DeviceGate) -> None:
    first, second = Standing(), Standing()
    with ExitStack() as starting:
        with gate.shared():
            starting.enter_context(gate.in_background(first))
            starting.enter_context(gate.in_background(second))
        assert first.told == ["stop", "go"], "the first has to see whether the device can be shared"
        first.told.clear()
        with gate.shared():
            assert first.told == second.told == [], "beside who shares it goes on"
        with gate.exclusive():
            assert first.told == second.told == ["stop", "stand"]
        assert first.told == second.told == ["stop", "stand", "go"]
    with gate.exclusive():
        assert len(first.told) == 3, "it is through"


def test_who_comes_while_somebody_is_alone_stands_still_until_then(gate: DeviceGate) -> None:
    came, out = threading.Event(), threading.Event()
    out.set()
    with gate.exclusive(), ThreadPoolExecutor(1) as threads:
        late = Standing()

        def come() -> None:
            with gate.in_background(late):
                came.set()
                assert out.wait(AT_LAST)

        out.clear()
        threads.submit(come)
        assert came.wait(AT_LAST), "it is not waited for, nor does it wait"
        assert late.told == ["stop"]
        with gate.exclusive():
            pass
        assert late.told == ["stop"], "he is alone as before"
        out.set()
    with gate.shared():
        assert late.told == ["stop", "go"]


def test_the_first_to_come_stands_still_while_another_process_has_the_device(gate: DeviceGate) -> None:
    other, come, out = DeviceGate(find_device("cpu")), Standing(), threading.Event()
    alone, inside = passing(other, "exclusive", out)
    assert inside.wait(AT_LAST)
    with ThreadPoolExecutor(1) as threads:
        through = threads.submit(lambda: gate.in_background(come).__enter__())
        time.sleep(SOON)
        assert come.told == ["stop"]
        assert not through.done()
        out.set()
        through.result(AT_LAST)
    alone.join(AT_LAST)
    assert come.told == ["stop", "go"]


def test_one_that_gets_ready_while_it_is_stopped_goes_on_all_the_same(gate: DeviceGate) -> None:
    starting, one = ExitStack(), Standing()
    with gate.shared():
        starting.enter_context(gate.in_background(one))
    one.told.clear()
    with gate.exclusive():
        starting.close()
    assert one.told == ["stop", "stand", "go"]


def test_other_processes_wait_for_who_stands_aside_and_have_their_turn_when_it_is_stopped(gate: DeviceGate) -> None:
    """Locks of files belong to their open files: another gate of this process stands for one of another."""
    other, starting, out = DeviceGate(find_device("cpu")), ExitStack(), threading.Event()
    out.set()
    with gate.shared():
        starting.enter_context(gate.in_background(Standing()))
    alone, inside = passing(other, "exclusive", out)
    assert not inside.wait(SOON)
    with gate.exclusive():  # who wanted it first had it first
        assert inside.is_set()
    alone.join(AT_LAST)
    again, inside = passing(other, "exclusive", out)
    assert not inside.wait(SOON), "it goes on, and counts again"
    starting.close()
    assert inside.wait(AT_LAST)
    again.join(AT_LAST)
