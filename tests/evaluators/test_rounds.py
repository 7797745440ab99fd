import pytest

from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.rounds import Plan, plan_for

SETTINGS = EvaluationSettings(warmup=3, rounds=10, calls_per_round=10, timing_seconds=1.0)


@pytest.mark.parametrize(
    ("call_ms", "plan"),
    [
        (0.01, Plan(rounds=10, calls=10, warmup=3)),
        (10.0, Plan(rounds=10, calls=10, warmup=3)),
        (20.0, Plan(rounds=10, calls=5, warmup=3)),
        (100.0, Plan(rounds=10, calls=1, warmup=2)),
        (200.0, Plan(rounds=5, calls=1, warmup=1)),
        (300.0, Plan(rounds=3, calls=1, warmup=0)),
        (5000.0, Plan(rounds=3, calls=1, warmup=0)),
    ],
)
def test_slow_kernels_are_called_less(call_ms: float, plan: Plan) -> None:
    assert plan_for(call_ms, SETTINGS) == plan
