"""Judges in processes of their own: what they see, and what is left when they or their parent end."""

import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kbevolve.archive.parts import changed
from kbevolve.archive.records import Verdict
from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.settings import WorkSettings
from kbevolve.evaluators.device.devices import Device, find_device
from kbevolve.evaluators.fleet import fleet as fleet_module
from kbevolve.evaluators.fleet.fleet import Fleet, local_fleet
from kbevolve.evaluators.fleet.judge_process import environment
from tests.evaluators.fleet.scripted import DEVICE, SETTINGS, kernels
from tests.evaluators.simulated import NAME, SimulatedJudge, faulty, pid_of
from tests.evolve.doubles import kernel, problem


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    cpu = find_device("cpu")
    with local_fleet((cpu, cpu), SETTINGS, WorkSettings(width=2), judge=NAME) as made:
        yield made


def pids(fleet: Fleet) -> set[int]:
    return {judge.info.pid for judge in fleet._slots.judges}


@pytest.mark.slow
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
