"""How KernelBench times a call, where no GPU is needed."""

import pytest
import torch

from kbevolve.evaluators.worker import recipe_timing


def test_the_host_time_counts_trials_after_warm_up_and_a_discarded_call(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter(range(100))
    monkeypatch.setattr(recipe_timing.time, "perf_counter", lambda: float(next(moments)))
    calls = []
    times = recipe_timing.host_time(lambda: calls.append(1), 6, torch.device("cpu"))
    assert times == [1000.0] * 6, "milliseconds from just before a call to just after it"
    assert len(calls) == recipe_timing.WARM_UP + recipe_timing.DISCARDED + 6
