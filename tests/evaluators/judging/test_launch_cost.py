"""Launches of a call are measured of kernels that are worth a profile, and inform only."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from kbevolve.archive.parts import grouped
from kbevolve.archive.records import Evaluation, LaunchCost, Verdict
from kbevolve.evaluators.candidate.call import CallCost
from kbevolve.evaluators.candidate.process import CandidateProcess
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.device.gate import DeviceGate
from kbevolve.evaluators.judging import pipeline
from kbevolve.evaluators.judging.context import ProblemContext
from kbevolve.evaluators.judging.phases import Phases
from kbevolve.evaluators.rejection import Rejection

CPU = find_device("cpu")
REFERENCE = CallCost(host_ms=0.02, kernelbench_ms=2.7)


class Candidate:
    """A worker that reports these costs, or fails; counts what it is asked for."""

    def __init__(self, cost: CallCost | None = None) -> None:
        self.cost = cost
        self.asked: list[str] = []
        self.worker = SimpleNamespace(deadline=time.monotonic(), built=[])

    def launch_cost(self, _: object) -> CallCost:
        self.asked.append("launch cost")
        if self.cost is None:
            raise Rejection(Verdict.CRASHED, "it died")
        return self.cost

    def profile(self, _: object) -> list[dict[str, Any]]:
        self.asked.append("profile")
        return [{"name": "mine", "microseconds": 900.0, "launches": 3.0, "registers": 32}]

    @contextmanager
    def on_device(self) -> Iterator[None]:
        yield


def context(device_type: str = "cuda", *, profile: bool = True, best: float = 1.0) -> Any:
    """A problem whose reference was measured."""
    judge = SimpleNamespace(settings=SimpleNamespace(profile=profile), gate=DeviceGate(CPU), disk_cache=None)
    made = SimpleNamespace(
        device=SimpleNamespace(type=device_type), judge=judge, best_speedup=best, card=None,
        prepared=SimpleNamespace(first_inputs=list),
        reference_cost=REFERENCE if device_type == "cuda" else None,
    )  # fmt: skip
    made.launch_cost = lambda process: ProblemContext.launch_cost(made, process)
    return made


def profiled(candidate: Candidate, asked: Any, *, speedup: float = 3.0) -> Evaluation:
    found = grouped(
        Evaluation, kernel="k", problem="p", device="cuda/H", precision="fp32", verdict=Verdict.CORRECT,
        time_ms=1.0, reference_ms=speedup, speedup=speedup, speedup_low=speedup, speedup_high=speedup,
    )  # fmt: skip
    process: Any = candidate
    return pipeline._profiled(asked, process, found, Phases(asked.judge.gate))


@pytest.fixture(autouse=True)
def without_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "roofline_of", lambda *_, **__: None)


def test_a_kernel_worth_a_profile_has_its_launches_measured_first() -> None:
    candidate = Candidate(CallCost(host_ms=0.038, kernelbench_ms=1.08))
    found = profiled(candidate, context())
    assert candidate.asked == ["launch cost", "profile"]
    assert found.profile is not None
    assert found.profile.launch_cost == LaunchCost(
        host_ms=0.038, reference_host_ms=0.02, kernelbench_ms=1.08, kernelbench_reference_ms=2.7,
        kernelbench_speedup=2.5, launches=3.0,
    )  # fmt: skip
    assert found.timing.speedup == 3.0
    assert found.verdict is Verdict.CORRECT


@pytest.mark.parametrize("asked", [context(best=3.5), context(profile=False)], ids=["far behind", "no profiles"])
def test_other_kernels_cost_no_time(asked: Any) -> None:
    candidate = Candidate(CallCost(host_ms=0.038, kernelbench_ms=1.08))
    assert profiled(candidate, asked).profile is None
    assert candidate.asked == []


def test_a_cpu_has_no_launches() -> None:
    candidate = Candidate(CallCost(host_ms=0.038, kernelbench_ms=1.08))
    found = profiled(candidate, context("cpu"))
    assert found.profile is not None
    assert found.profile.launch_cost is None
    assert candidate.asked == ["profile"]


def test_a_failure_has_no_consequence() -> None:
    found = profiled(Candidate(None), context())
    assert found.verdict is Verdict.CORRECT
    assert found.profile is not None
    assert found.profile.launch_cost is None


@pytest.mark.parametrize("reply", [{}, {"host_ms": 0.1}, {"host_ms": 0.1, "kernelbench_ms": 0.0}])
@pytest.mark.parametrize("kernelbench_ms", [None, "1", -1.0, float("nan"), float("inf"), 1e9, True])
def test_a_reply_without_two_possible_times_is_rejected(
    monkeypatch: pytest.MonkeyPatch, reply: dict[str, Any], kernelbench_ms: Any
) -> None:
    process: Any = object.__new__(CandidateProcess)
    process._settings, process._prepared = SimpleNamespace(run_seconds=1.0), SimpleNamespace(input_places=[])
    given = reply | ({"kernelbench_ms": kernelbench_ms} if kernelbench_ms is not None else {})
    for name, answer in (("_write", None), ("_request", {}), ("_ask", given)):
        monkeypatch.setattr(CandidateProcess, name, lambda *_, answer=answer: answer)
    with pytest.raises(Rejection):
        process.launch_cost([])
