"""Several judges behind the contracts of one: which judge is asked, what a death costs, and what remains afterwards."""

import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kbevolve import __version__
from kbevolve.archive.parts import changed
from kbevolve.archive.records import Evaluation, Kernel, Verdict
from kbevolve.configs.errors import EvaluatorError, ProblemError
from kbevolve.configs.settings import EvaluationSettings, WorkSettings
from kbevolve.evaluators.device.devices import Device, find_device
from kbevolve.evaluators.fleet import fleet as fleet_module
from kbevolve.evaluators.fleet import slots
from kbevolve.evaluators.fleet.fleet import Fleet, local_fleet
from kbevolve.evaluators.fleet.judge_host import JudgeDied, JudgeInfo, JudgeRequest
from kbevolve.evaluators.fleet.judge_process import environment
from kbevolve.evaluators.fleet.slots import Slot
from tests.evaluators.simulated import NAME, SimulatedJudge, faulty, pid_of
from tests.evolve.doubles import kernel, problem

DEVICE = Device(type="cpu", index=0, fingerprint="cpu/double", description="a double")
SETTINGS = EvaluationSettings()


class ScriptedJudge:
    """Implements `RemoteJudge` in this process: records parallel requests, and dies of those that are `deadly`."""

    def __init__(
        self, width: int = 1, deadly: Callable[[JudgeRequest], bool] = lambda _: False, device: Device = DEVICE
    ) -> None:
        self.info = JudgeInfo(device=device, width=width, version=__version__, host="here", pid=1)
        self.deadly = deadly
        self.judge: Any = SimulatedJudge(device, SETTINGS)
        self.dead = threading.Event()
        self.under_way: list[str] = []
        #: Kernel or method -> what was under way when its request arrived.
        self.beside: dict[str, list[str]] = {}

    def ask(self, request: JudgeRequest, *, seconds: float) -> Any:
        name = request.kernels[0].id if request.kernels else request.method
        self.beside[name] = list(self.under_way)
        self.under_way.append(name)
        try:
            if self.deadly(request):
                self.dead.set()
            found = request.call(self.judge)
            if self.dead.is_set():
                raise JudgeDied("its process died")
            return found
        finally:
            self.under_way.remove(name)

    def close(self) -> None:
        self.dead.set()


class FailingJudge(ScriptedJudge):
    """Raises an error for every request."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def ask(self, request: JudgeRequest, *, seconds: float) -> Any:
        raise self.error


class Scripts:
    """Slots whose judges are made by a function of the slot and the number of judges that it had before."""

    def __init__(self, count: int, make: Callable[[int, int], ScriptedJudge]) -> None:
        self.judges: list[list[ScriptedJudge]] = [[] for _ in range(count)]
        self._make = make

    def fleet(self, **options: Any) -> Fleet:
        made = [Slot(name=f"slot {number}", start=partial(self._start, number)) for number in range(len(self.judges))]
        return Fleet(made, SETTINGS, **options)

    def _start(self, number: int, given_up: Callable[[], bool]) -> ScriptedJudge:
        judge = self._make(number, len(self.judges[number]))
        self.judges[number].append(judge)
        return judge


def evaluate_all(fleet: Fleet, asked: list[Kernel], threads: int) -> list[Evaluation]:
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda one: fleet.evaluate(problem(), one), asked))


def kernels(count: int, seconds: float = 0.0) -> list[Kernel]:
    return [faulty(SECONDS=seconds, NUMBER=number) for number in range(count)]


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
    asked = kernels(6, seconds=0.05)
    scripts = Scripts(1, lambda *_: ScriptedJudge())
    with scripts.fleet() as fleet, ThreadPoolExecutor(len(asked)) as threads:
        for one in asked:
            threads.submit(fleet.evaluate, problem(), one)
            time.sleep(0.01)
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
    scripts = Scripts(1, lambda *_: ScriptedJudge())
    closings: list[bool] = []
    fleet = scripts.fleet(closing=lambda: closings.append(True))
    with ThreadPoolExecutor(2) as threads:
        slow, waiting = (threads.submit(fleet.evaluate, problem(), one) for one in kernels(2, seconds=0.3))
        time.sleep(0.1)
        fleet.close()
        for future in (slow, waiting):
            with pytest.raises(EvaluatorError, match="closed before this kernel"):
                future.result()
    fleet.close()
    assert closings == [True]


# ---- real processes --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    cpu = find_device("cpu")
    with local_fleet((cpu, cpu), SETTINGS, WorkSettings(width=2), judge=NAME) as made:
        yield made


def pids(fleet: Fleet) -> set[int]:
    return {judge.info.pid for judge in fleet._slots.judges}


def test_judges_live_in_processes_of_their_own(fleet: Fleet) -> None:
    assert fleet.width == 4
    assert fleet.device == find_device("cpu")
    assert len(pids(fleet) | {os.getpid()}) == 3
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda one: fleet.evaluate(problem(), one), kernels(8, seconds=0.05)))
    assert {pid_of(one) for one in found} == pids(fleet)
    alone = SimulatedJudge(fleet.device, SETTINGS).evaluate(problem(), kernels(8, seconds=0.05)[0])
    assert found[0] == changed(alone, tags=found[0].tags, device_instance=found[0].execution.device_instance)
    assert {one.execution.device_instance for one in found} == {
        f"{platform.node()}/cpu ({number})" for number in (1, 2)
    }
    contest = fleet.compete(problem(), [kernel(), kernel(TILE=32)], rounds=3)
    assert contest.times.keys() == {kernel().id, kernel(TILE=32).id}
    assert [one.name for one in fleet.baselines(problem())] == ["compile", "graph"]
    assert fleet.card(problem()).problem == problem().id


@pytest.mark.slow
def test_a_process_that_is_killed_loses_nothing(fleet: Fleet, tmp_path: Path) -> None:
    before = pids(fleet)
    asked = [*kernels(6, seconds=0.2), faulty(KILL_ONCE=str(tmp_path / "one")), faulty(NUMBER=1)]
    with ThreadPoolExecutor(4) as threads:
        futures = [threads.submit(fleet.evaluate, problem(), one) for one in asked]
        found = [future.result(timeout=60) for future in futures]
    assert [one.kernel for one in found] == [one.id for one in asked]
    assert {one.verdict for one in found} == {Verdict.CORRECT}
    assert (tmp_path / "one").exists()
    patience = time.monotonic() + 30
    while len(pids(fleet)) < 2:
        assert time.monotonic() < patience, "the dead judge was not replaced"
        time.sleep(0.05)
    assert len(pids(fleet) & before) == 1


@pytest.mark.slow
def test_a_kernel_that_no_process_survives_is_a_result(fleet: Fleet) -> None:
    found = fleet.evaluate(problem(), faulty(FAULT="kill"))
    assert found.verdict is Verdict.CRASHED
    assert "its process died of SIGKILL" in found.message
    broken = fleet.evaluate(problem(), faulty(FAULT="raise"))
    assert broken.verdict is Verdict.CRASHED
    assert "RuntimeError: CUDA error: the launch timed out and was terminated" in broken.message
    with pytest.raises(EvaluatorError, match=r"^no worker starts here; reboot$"):
        fleet.evaluate(problem(), faulty(FAULT="error"))
    assert fleet.evaluate(problem(), kernel()).verdict is Verdict.CORRECT


@pytest.mark.slow
def test_a_judge_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_module, "_OVERHEAD_SECONDS", 1.0)
    quick = SETTINGS.model_copy(update={"total_seconds": 0.01})
    with local_fleet((find_device("cpu"),), quick, WorkSettings(), judge=NAME) as made:
        before = pids(made)
        found = made.evaluate(problem(), faulty(SECONDS=100))
        assert found.verdict is Verdict.CRASHED
        assert found.message.startswith("stopped: 2 judges died (cpu: it gave no answer within 1 s; cpu: it gave no")
        assert not any(alive(pid) for pid in before)
        assert made.evaluate(problem(), kernel()).verdict is Verdict.CORRECT


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


ORPHAN = f"""
import time
from kbevolve.configs.settings import EvaluationSettings, WorkSettings
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.fleet.fleet import local_fleet
made = local_fleet([find_device("cpu")], EvaluationSettings(), WorkSettings(), judge={NAME!r})
print(made._slots.judges[0].info.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.slow
def test_judges_die_with_the_process_that_started_them() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ORPHAN], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]
    ) as asking:
        assert asking.stdout is not None
        pid = int(asking.stdout.readline())
        assert alive(pid)
        asking.kill()  # so that nothing of it can end them
    patience = time.monotonic() + 10
    while alive(pid):
        assert time.monotonic() < patience, "a judge outlived the process that started it"
        time.sleep(0.05)


@pytest.mark.slow
def test_a_judge_that_does_not_start_is_an_error_of_one_line() -> None:
    cpu = find_device("cpu")
    with pytest.raises(EvaluatorError, match=r"^no judge on cpu: .*ModuleNotFoundError: No module named 'absent'$"):
        local_fleet((cpu,), SETTINGS, WorkSettings(), judge="absent:Judge")


def test_a_judge_sees_its_own_gpu_and_no_key() -> None:
    inherited = {"CUDA_VISIBLE_DEVICES": "4,GPU-5,6", "OPENAI_API_KEY": "sk-secret", "HF_TOKEN": "x", "PATH": "/bin"}
    second = Device(type="cuda", index=1, fingerprint="cuda/x", description="x")
    assert environment(second, inherited) == {"CUDA_VISIBLE_DEVICES": "GPU-5", "PATH": "/bin"}
    assert environment(second, {})["CUDA_VISIBLE_DEVICES"] == "1"
    assert environment(DEVICE, inherited)["CUDA_VISIBLE_DEVICES"] == ""
