"""How PyTorch's own ways are set up; what they give on a GPU is tested in tests/gpu."""

import os

import pytest
import torch
from torch import nn

from kbevolve.evaluators.worker import baselines

THREADS = "TORCHINDUCTOR_COMPILE_THREADS"


@pytest.mark.parametrize(("kind", "threads"), [("compile", "1"), ("max-autotune", str(len(os.sched_getaffinity(0))))])
def test_the_searches_of_max_autotune_compile_on_all_cores(
    monkeypatch: pytest.MonkeyPatch, kind: str, threads: str
) -> None:
    monkeypatch.setenv(THREADS, "1")  # as in a worker
    seen: list[str] = []

    def compiled(model: nn.Module, **_: object) -> nn.Module:
        seen.append(os.environ[THREADS])
        return model

    monkeypatch.setattr(torch, "compile", compiled)
    model = nn.Linear(2, 2)
    assert baselines.wrap(model, kind)(torch.ones(1, 2)).shape == (1, 2)
    assert seen == [threads]
