"""Eager with PyTorch's default flags on a GPU: its convolutions use TF32, and it is accepted and timed as it is."""

from pathlib import Path

import pytest
import torch

from kbevolve.configs.problem import Problem, parse_problem
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.disk_cache import DiskCache
from kbevolve.evaluators.judging.judge import Judge
from kbevolve.evaluators.timing.baselines import DEFAULT_FLAGS, best

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

TEXT = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = {layer}

    def forward(self, x):
        return self.layer(x)


def get_inputs():
    return [torch.randn({shape})]


def get_init_inputs():
    return []
"""


def problem(layer: str, shape: str) -> Problem:
    return parse_problem(TEXT.format(layer=layer, shape=shape), name="tests/layer", path=Path("layer.py"))


CONVOLUTION = problem("nn.Conv2d(128, 128, 3, padding=1)", "32, 128, 64, 64")
PRODUCT = problem("nn.Linear(4096, 4096)", "4096, 4096")


def test_a_convolution_is_faster_with_default_flags_and_a_product_is_not(tmp_path: Path) -> None:
    settings = EvaluationSettings(trials=2, rounds=7, timing_seconds=2.0)
    with Judge(find_device("cuda"), settings, disk_cache=DiskCache(tmp_path)) as judge:
        for asked, least, most in ((CONVOLUTION, 1.3, 20.0), (PRODUCT, 0.97, 1.03)):
            found = {one.name: one for one in judge.baselines(asked)}
            default = found[DEFAULT_FLAGS]
            assert not any(one.failure for one in found.values()), "TF32 and the memory of CUDA graphs are accepted"
            assert default.speedup is not None
            assert least < default.speedup < most
            assert best(found.values()).name != DEFAULT_FLAGS
        assert not torch.backends.cuda.matmul.allow_tf32
