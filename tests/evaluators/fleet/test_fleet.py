"""Several judges behind the contracts of one: which judge is asked, what a death costs, and what remains afterwards."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from kbevolve.archive.records import Verdict
from kbevolve.configs.errors import EvaluatorError, ProblemError
from kbevolve.evaluators.fleet import slots
from kbevolve.evaluators.fleet.judge_host import JudgeRequest
from tests.evaluators.fleet.scripted import DEVICE, FailingJudge, ScriptedJudge, Scripts, evaluate_all, kernels
from tests.evaluators.simulated import faulty
from tests.evolve.doubles import kernel, problem
from tests.waiting import until


def test_the_work_is_shared_and_no_judge_gets_more_than_its_width() -> None:
    scripts = Scripts(3, lambda slot, _: ScriptedJudge(width=2))
    asked = kernels(18, seconds=0.03)
    with scripts.fleet() as fleet:
        assert fleet.width == 6
        found = evaluate_all(fleet, asked, len(asked))
    assert [one.kernel for one in found] == [one.id for one in asked]
    shares = [judge.beside for (judge,) in scripts.judges]
    assert all(len(share) >= 4 for share in shares), "18 kernels on 3 equal judges"
    assert max(len(others) for share in shares for others in share.values()) == 1


def test_first_come_first_served_when_all_are_full() -> None:
    asked, may_end = kernels(6), threading.Event()
    scripts = Scripts(1, lambda *_: ScriptedJudge(deadly=lambda _: not may_end.wait(20)))
    with scripts.fleet() as fleet, ThreadPoolExecutor(len(asked)) as threads:
        for number, one in enumerate(asked):
            threads.submit(fleet.evaluate, problem(), one)
            until(lambda number=number: len(scripts.judges[0][0].beside) == 1 and len(fleet._slots._queue) == number)
        may_end.set()
    assert list(scripts.judges[0][0].beside) == [one.id for one in asked]


def test_a_judge_that_dies_costs_a_retry_and_is_replaced() -> None:
    scripts = Scripts(2, lambda slot, before: ScriptedJudge(width=3, deadly=lambda _: slot == 0 and before == 0))
    asked = kernels(12, seconds=0.02)
    with scripts.fleet() as fleet:
        assert {one.verdict for one in evaluate_all(fleet, asked, 6)} == {Verdict.CORRECT}
        patience = time.monotonic() + 5
        while len(fleet._slots.judges) < 2 and time.monotonic() < patience:
            time.sleep(0.01)
        assert len(fleet._slots.judges) == len(scripts.judges[0]) == 2


def test_a_kernel_that_kills_judges_is_evaluated_again_alone_and_then_blamed_alone() -> None:
    """Its neighbours die with it once, and never with it again."""
    killer = faulty(NUMBER=99)
    scripts = Scripts(2, lambda *_: ScriptedJudge(width=4, deadly=lambda request: killer in request.kernels))
    asked = [*kernels(7, seconds=0.1), killer, *[faulty(SECONDS=0.1, NUMBER=number) for number in range(10, 17)]]
    with scripts.fleet() as fleet:
        found = {one.kernel: one for one in evaluate_all(fleet, asked, len(asked))}
        assert len(fleet._slots.judges) == 2, "the kernel was blamed, so no device is"
    assert found.pop(killer.id).verdict is Verdict.CRASHED
    assert {one.verdict for one in found.values()} == {Verdict.CORRECT}
    judges = [judge for one in scripts.judges for judge in one]
    beside = [judge.beside[killer.id] for judge in judges if killer.id in judge.beside]
    assert len(beside) == 2
    assert [] in beside, "the second time it was alone"


def test_killers_in_a_row_do_not_cost_a_device() -> None:
    scripts = Scripts(3, lambda *_: ScriptedJudge(deadly=lambda request: request.method == "evaluate"))
    with scripts.fleet() as fleet:
        fleet._slots.slots[0].failures = 1  # one that no kernel caused
        assert {fleet.evaluate(problem(), one).verdict for one in kernels(8)} == {Verdict.CRASHED}
        assert not [slot.name for slot in fleet._slots.slots if slot.quarantine]


def test_the_evaluation_of_such_a_kernel() -> None:
    killer = faulty(NUMBER=99)
    scripts = Scripts(1, lambda *_: ScriptedJudge(deadly=lambda request: killer in request.kernels))
    with scripts.fleet() as fleet:
        found = fleet.evaluate(problem(), killer)
        assert (found.kernel, found.problem, found.device) == (killer.id, problem().id, DEVICE.fingerprint)
        assert found.message == (
            "stopped: 2 judges died (slot 0: its process died; slot 0: its process died) while they evaluated this "
            "kernel, the second one with no other kernel"
        )
        assert fleet.evaluate(problem(), kernel()).verdict is Verdict.CORRECT


def test_where_the_reference_kills_judges_too_no_kernel_is_blamed() -> None:
    scripts = Scripts(1, lambda *_: ScriptedJudge(deadly=lambda _: True))
    with scripts.fleet() as fleet, pytest.raises(EvaluatorError, match="the reference failed as well") as caught:
        fleet.evaluate(problem(), kernel())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("count", [1, 2])
def test_a_kernel_that_ends_a_contest_is_removed_and_the_others_compete_again(count: int) -> None:
    killer, others = faulty(NUMBER=99), kernels(2)
    scripts = Scripts(count, lambda *_: ScriptedJudge(deadly=lambda request: killer in request.kernels))
    with scripts.fleet() as fleet:
        contest = fleet.compete(problem(), [others[0], killer, others[1]], rounds=3)
        assert contest.times.keys() == {one.id for one in others}
        assert contest.failed.keys() == {killer.id}
        assert contest.failed[killer.id].verdict is Verdict.CRASHED
        assert not [slot for slot in fleet._slots.slots if slot.quarantine]
        assert fleet.compete(problem(), [killer], rounds=3).times == {}


def test_a_contest_that_ends_judges_through_none_of_its_kernels_is_an_error() -> None:
    scripts = Scripts(2, lambda *_: ScriptedJudge(deadly=lambda request: request.method == "compete"))
    with (
        scripts.fleet() as fleet,
        pytest.raises(EvaluatorError, match=r"2 judges died .* over compete of \w+, \w+; see"),
    ):
        fleet.compete(problem(), kernels(2), rounds=3)


def test_any_error_that_keeps_a_judge_from_starting_again_is_reported() -> None:
    def make(slot: int, before: int) -> ScriptedJudge:
        if before:
            raise OSError(24, "Too many open files")
        return ScriptedJudge(deadly=lambda _: True)

    with (
        Scripts(1, make).fleet() as fleet,
        pytest.raises(EvaluatorError, match=r"no device is left: slot 0: .*Too many open files"),
    ):
        fleet.evaluate(problem(), kernel())


def test_a_slot_that_fails_twice_in_a_row_is_quarantined() -> None:
    scripts = Scripts(2, lambda slot, _: ScriptedJudge(width=1, deadly=lambda _: slot == 0))
    asked = kernels(8, seconds=0.02)
    with scripts.fleet() as fleet:
        found = evaluate_all(fleet, asked, 2)
        assert len(fleet._slots.judges) == 1
    assert {one.verdict for one in found} == {Verdict.CORRECT}
    assert len(scripts.judges[0]) == 2


def test_a_success_between_two_failures_keeps_a_slot() -> None:
    bad = {one.id for one in kernels(20)[::2]}
    seen: set[str] = set()

    def first_time(request: JudgeRequest) -> bool:
        name = request.kernels[0].id if request.kernels else ""
        return name in bad and not (name in seen or seen.add(name))  # type: ignore[func-returns-value]

    scripts = Scripts(1, lambda *_: ScriptedJudge(deadly=first_time))
    with scripts.fleet() as fleet:
        found = [fleet.evaluate(problem(), one) for one in kernels(20)]
    assert {one.verdict for one in found} == {Verdict.CORRECT}
    assert len(scripts.judges[0]) == 11


def test_after_an_error_of_one_device_another_is_tried() -> None:
    error = EvaluatorError("the GPU has fallen off the bus; reboot")
    scripts = Scripts(2, lambda slot, _: FailingJudge(error) if slot == 0 else ScriptedJudge())
    with scripts.fleet() as fleet:
        found = [fleet.evaluate(problem(), one) for one in kernels(5)]
        assert {one.verdict for one in found} == {Verdict.CORRECT}
        assert len(fleet._slots.judges) == 1
    with (
        Scripts(2, lambda *_: FailingJudge(error)).fleet() as fleet,
        pytest.raises(EvaluatorError, match=r"^the GPU has fallen off the bus; reboot$"),
    ):
        fleet.evaluate(problem(), kernel())


def test_with_no_device_left_it_says_so_in_one_line() -> None:
    with Scripts(1, lambda *_: FailingJudge(EvaluatorError("it is gone"))).fleet() as fleet:
        for match in ("^it is gone$", "^no device is left: slot 0: it is gone; see `kbevolve doctor`"):
            with pytest.raises(EvaluatorError, match=match):
                fleet.evaluate(problem(), kernel())


def test_the_wait_for_a_judge_to_return_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "_PATIENCE_SECONDS", 0.3)
    away = threading.Event()

    def make(slot: int, before: int) -> ScriptedJudge:
        if before:
            away.wait(10)
        return ScriptedJudge(deadly=lambda _: True)

    scripts = Scripts(1, make)
    with scripts.fleet() as fleet:
        with pytest.raises(EvaluatorError, match="no judge returned within 0 s"):
            fleet.evaluate(problem(), kernel())
        away.set()


def test_a_mistake_of_the_user_is_not_tried_again_and_does_not_count_against_a_device() -> None:
    with Scripts(1, lambda *_: FailingJudge(ProblemError("get_inputs() gives no tensor"))).fleet() as fleet:
        for _ in range(3):
            with pytest.raises(ProblemError, match="no tensor"):
                fleet.card(problem())


def test_devices_of_two_models_do_not_judge_one_run() -> None:
    other = replace(DEVICE, fingerprint="cpu/another", description="another")
    scripts = Scripts(2, lambda slot, _: ScriptedJudge(device=(DEVICE, other)[slot]))
    with pytest.raises(EvaluatorError, match="different models or versions: cpu/another; cpu/double; choose equal"):
        scripts.fleet()
    assert all(judge.dead.is_set() for (judge,) in scripts.judges), "all judges were ended"
    scripts = Scripts(2, lambda slot, _: ScriptedJudge(device=(DEVICE, other)[slot]))
    with scripts.fleet(mixed=True) as fleet:
        assert fleet.device.fingerprint == "cpu/another + cpu/double"
        found = [fleet.evaluate(problem(), one) for one in kernels(2)]
        assert {one.device for one in [*found, fleet.card(problem())]} == {fleet.device.fingerprint}


def test_closing_ends_requests_under_way() -> None:
    scripts = Scripts(1, lambda *_: ScriptedJudge(deadly=lambda _: not may_end.wait(0.3)))
    may_end, closings = threading.Event(), list[bool]()
    fleet = scripts.fleet(closing=lambda: closings.append(True))
    with ThreadPoolExecutor(2) as threads:
        slow, waiting = (threads.submit(fleet.evaluate, problem(), one) for one in kernels(2))
        until(lambda: len(scripts.judges[0][0].beside) == 1 and len(fleet._slots._queue) == 1)
        fleet.close()
        for future in (slow, waiting):
            with pytest.raises(EvaluatorError, match="closed before this kernel"):
                future.result()
    fleet.close()
    assert closings == [True]


def test_the_judge_of_a_slot_that_is_forgiven_at_once_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    scripts = Scripts(1, lambda *_: ScriptedJudge())
    with scripts.fleet() as fleet:
        slot, forgive = fleet._slots.slots[0], fleet._slots.forgive
        slot.failures = 1
        lease = fleet._slots.acquire()
        monkeypatch.setattr(fleet._slots._changed, "notify_all", lambda: forgive(slot))  # as another thread might
        fleet._slots.release(lease, failure="out of memory")
        monkeypatch.undo()
        assert scripts.judges[0][0].dead.is_set()
        until(lambda: len(fleet._slots.judges) == 1)


def test_a_slot_that_is_forgiven_has_no_request_under_way() -> None:
    scripts = Scripts(1, lambda *_: ScriptedJudge(width=3))
    fleet = scripts.fleet()
    slots_of = fleet._slots
    first, second, third = (slots_of.acquire() for _ in range(3))
    for lease in (first, second):
        slots_of.release(lease, failure="out of memory")
    slots_of.report_death(third, "its process died", counts=True)
    slots_of.forgive(third.slot)
    with ThreadPoolExecutor(1) as thread:
        alone = thread.submit(slots_of.acquire, alone=True)
        try:
            assert alone.result(10).slot is third.slot
        finally:
            fleet.close()  # else the thread would wait for ever
