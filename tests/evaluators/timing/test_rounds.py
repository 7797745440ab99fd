"""How much is timed of a kernel."""

import pytest

from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.timing.rounds import TimingPlan, plan_for

SETTINGS = EvaluationSettings(warmup=3, least_rounds=5, rounds=25, calls_per_round=10, timing_seconds=1.0)


@pytest.mark.parametrize(
    ("call_ms", "plan"),
    [
        (0.01, TimingPlan(least_rounds=5, rounds=25, calls=10, warmup=3)),
        (10.0, TimingPlan(least_rounds=5, rounds=10, calls=10, warmup=3)),
        (20.0, TimingPlan(least_rounds=5, rounds=5, calls=10, warmup=3)),
        (40.0, TimingPlan(least_rounds=5, rounds=5, calls=5, warmup=3)),
        (150.0, TimingPlan(least_rounds=5, rounds=6, calls=1, warmup=1)),
        (300.0, TimingPlan(least_rounds=3, rounds=3, calls=1, warmup=0)),
        (5000.0, TimingPlan(least_rounds=3, rounds=3, calls=1, warmup=0)),
    ],
)
def test_slow_kernels_get_fewer_calls(call_ms: float, plan: TimingPlan) -> None:
    assert plan_for(call_ms, SETTINGS, most_calls=100) == plan


def test_large_inputs_mean_fewer_calls() -> None:
    assert plan_for(0.01, SETTINGS, most_calls=3).calls == 3


def test_a_block_of_one_call_is_not_warmed_up_again() -> None:
    assert plan_for(300.0, SETTINGS, most_calls=100).block_warmup == 0
    assert plan_for(0.01, SETTINGS, most_calls=100).block_warmup == 1
