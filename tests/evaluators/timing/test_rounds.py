"""How much is timed of a kernel."""

from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.timing import rounds
from kbevolve.evaluators.timing.rounds import TimingPlan, beside, plan_for

SETTINGS = EvaluationSettings(warmup=3, least_rounds=5, rounds=25, calls_per_round=10, timing_seconds=1.0)


@pytest.mark.parametrize(
    ("call_ms", "plan"),
    [
        (0.01, TimingPlan(least_rounds=5, rounds=25, calls=10, warmup=3)),
        (4.0, TimingPlan(least_rounds=5, rounds=25, calls=10, warmup=3)),
        (8.0, TimingPlan(least_rounds=5, rounds=25, calls=5, warmup=3)),
        (20.0, TimingPlan(least_rounds=5, rounds=16, calls=3, warmup=3)),
        (40.0, TimingPlan(least_rounds=5, rounds=8, calls=3, warmup=3)),
        (90.0, TimingPlan(least_rounds=5, rounds=5, calls=2, warmup=2)),
        (150.0, TimingPlan(least_rounds=5, rounds=6, calls=1, warmup=1)),
        (300.0, TimingPlan(least_rounds=3, rounds=3, calls=1, warmup=0)),
        (5000.0, TimingPlan(least_rounds=3, rounds=3, calls=1, warmup=0)),
    ],
)
def test_slow_kernels_get_fewer_calls(call_ms: float, plan: TimingPlan) -> None:
    assert plan_for(call_ms, SETTINGS, most_calls=100) == plan


def test_a_kernel_gets_no_more_calls_than_the_reference_beside_it() -> None:
    reference, kernel = (plan_for(call_ms, SETTINGS, most_calls=100) for call_ms in (20.0, 1.0))
    assert beside(kernel, reference) == replace(kernel, calls=reference.calls)
    assert beside(reference, kernel) == reference


def test_large_inputs_mean_fewer_calls() -> None:
    assert plan_for(0.01, SETTINGS, most_calls=3).calls == 3


def test_a_block_of_one_call_is_not_warmed_up_again() -> None:
    assert plan_for(300.0, SETTINGS, most_calls=100).block_warmup == 0
    assert plan_for(0.01, SETTINGS, most_calls=100).block_warmup == 1


def test_the_output_of_a_baseline_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The replay of a CUDA graph overwrites what an earlier one returned. A kernel must not."""
    asked: dict[Any, bool] = {}

    def block(kernel: Any, *_: object, keep: bool, **__: object) -> tuple[Any, list[object]]:
        asked[kernel.name] = keep
        return SimpleNamespace(calls=()), []

    monkeypatch.setattr(rounds, "time_block", block)
    kernels: Any = {
        name: SimpleNamespace(name=name, is_baseline=name == "graph", worker=MagicMock())
        for name in ("reference", "kernel", "graph")
    }
    plans = dict.fromkeys(kernels, TimingPlan(least_rounds=1, rounds=1, calls=4, warmup=0))
    rounds.time_round(kernels, plans, MagicMock(), [], 0, Random(0), reference="reference")
    assert asked == {"reference": False, "kernel": True, "graph": False}
    rounds.time_round(kernels, plans, MagicMock(), [], 1, Random(0), reference="reference")
    assert not any(asked.values())
