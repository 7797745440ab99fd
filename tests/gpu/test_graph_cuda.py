"""Graphs on a GPU: regions give the reference's answer there, too, and take the time of the library's kernels."""

from pathlib import Path

import pytest
import torch

from kbevolve.configs.catalog import find_problem
from kbevolve.configs.problem import Problem, parse_problem
from kbevolve.evaluators.analysis.roofline import roofline_of
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.graph.measure import MeasuredGraph, measured
from kbevolve.evaluators.graph.regions import cut
from kbevolve.evaluators.graph.tracer import trace_source
from kbevolve.evaluators.worker.precision import DTYPES

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

MIXED = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(8, 32, 3, padding=1), nn.BatchNorm2d(32)
        self.rnn = nn.LSTM(32, 32, 2, batch_first=True)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)

    def forward(self, x):
        y = torch.relu_(self.norm(self.conv(x))).flatten(2).transpose(1, 2)
        h = torch.randn(2, x.shape[0], 32, device=x.device, dtype=x.dtype)
        y = self.layer(self.rnn(y, (h, torch.zeros_like(h)))[0])
        y[:, 0] += torch.tensor([1.5], device=x.device, dtype=x.dtype)
        return (y @ y.mT).tril(), y.argmax(-1)


def get_inputs():
    return [torch.randn(4, 8, 16, 16)]


def get_init_inputs():
    return []
"""


def measure(problem: Problem, precision: str) -> MeasuredGraph:
    device = find_device("cuda")
    graph = cut(trace_source(problem.source_for("cuda"), DTYPES[precision]))
    return measured(graph, problem, device, precision, roofline_of(device))


@pytest.mark.filterwarnings("ignore:RNN module weights are not part of single contiguous chunk")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_regions_give_the_reference_s_answer(precision: str) -> None:
    found = measure(parse_problem(MIXED, name="mixed", path=Path("mixed.py")), precision)
    # The model may take other library kernels than the regions do, because strides differ.
    assert found.difference < (1e-4 if precision == "fp32" else 5e-2)
    assert all(region.eager_ms and region.roofline_ms for region in found.graph.regions)


@pytest.mark.alone
@pytest.mark.parametrize("name", ["L1/matmul", "L1/softmax", "L2/gemm_bias_relu"])
def test_the_regions_take_the_time_of_the_model(name: str) -> None:
    found = measure(find_problem(name), "fp32")
    assert found.difference < 1e-6
    assert found.graph.total("eager_ms") == pytest.approx(found.eager_ms, rel=0.15)
    assert found.graph.total("roofline_ms") < found.eager_ms
