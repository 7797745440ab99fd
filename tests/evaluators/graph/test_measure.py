"""Times, rooflines and structure of regions, on a CPU."""

from pathlib import Path

import pytest
import torch

from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.problem import Problem, parse_problem
from kbevolve.evaluators.analysis.roofline import Roofline
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.graph.measure import MeasuredGraph, difference_of, measured, structure_of
from kbevolve.evaluators.graph.regions import cut
from kbevolve.evaluators.graph.tracer import trace_source

RATES = Roofline(
    bytes_per_second=4e10, operations_per_second={"fp64": 1e11, "fp32": 2e11}, l2_bytes=1 << 14, headroom=2.0
)
DEVICE = find_device("cpu")
SOURCE = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(64, 64)
        self.norm = torch.nn.BatchNorm1d(64)

    def forward(self, x, y):
        mask = torch.tril(torch.ones(64, 64)) == 0
        scores = (self.norm(self.fc(x)) @ y).masked_fill(mask, float("-inf"))
        return torch.softmax(scores, -1) @ x + torch.randn(64, 64)

def get_inputs():
    return [torch.randn(64, 64), torch.triu(torch.randn(64, 64))]

def get_init_inputs():
    return []
"""


def measure(source: str, precision: str = "fp32") -> MeasuredGraph:
    problem: Problem = parse_problem(source, name="mine", path=Path("mine.py"))
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    return measured(cut(trace_source(source, dtype)), problem, DEVICE, precision, RATES)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_every_region_is_timed_on_its_own_values_and_the_answer_is_the_models(precision: str) -> None:
    found = measure(SOURCE, precision)
    assert found.difference == 0
    assert found.eager_ms > 0
    regions = found.graph.region
    assert all(region.eager_ms and region.roofline_ms for region in regions.values())
    product = regions["linear"]
    size = 4 if precision == "fp32" else 2
    moved = size * (3 * 64 * 64 + 64)
    assert product.bytes_read + product.bytes_written == moved
    assert product.roofline_ms == pytest.approx(max(moved / 4e7, 2 * 64**3 / 2e8))
    assert regions["attention"].constants == {"scale": 1.0, "fill": float("-inf")}
    structures = {operand.role: operand.structure for operand in regions["attention"].operands}
    assert structures["mask"] == ("upper triangular",)


def test_a_triangular_operand_is_seen() -> None:
    found = measure(SOURCE.replace("torch.softmax(scores, -1) @ x + torch.randn(64, 64)", "scores"))
    assert found.graph.region["matmul"].operands[1].structure == ("upper triangular",)
    assert found.graph.region["matmul"].operands[0].structure == ()


def test_structure() -> None:
    full = torch.randn(5, 5)
    assert structure_of(torch.diag(torch.ones(5))) == ("diagonal",)
    assert structure_of(full.tril()) == ("lower triangular",)
    assert structure_of(torch.stack([full.triu(), full.triu()])) == ("upper triangular",)
    assert structure_of(full + full.T) == ("symmetric",)
    for other in (full, torch.zeros(5, 5), torch.ones(5), torch.ones(3, 4), torch.ones(1, 1)):
        assert structure_of(other) == ()


def test_a_reference_that_fails_says_so() -> None:
    broken = SOURCE.replace("        mask =", "        raise ValueError(3)\n        mask =")
    problem = parse_problem(broken, name="mine", path=Path("mine.py"))
    with pytest.raises(EvaluatorError, match=r"forward\(\) fails"):
        measured(cut(trace_source(SOURCE, torch.float32)), problem, DEVICE, "fp32", RATES)


def test_the_difference_of_answers() -> None:
    inf, nan = float("inf"), float("nan")
    found = [
        difference_of(torch.tensor(one), torch.tensor(other))
        for one, other in [
            ([1.0, -inf, nan], [1.0, -inf, nan]),
            ([3.0, 4.5], [3.0, 4.0]),
            ([1.0, nan], [1.0, 2.0]),
            ([1.0, 2.0], [1.0, inf]),
            ([0.0], [0.0]),
            ([True, False], [True, True]),
        ]
    ]
    assert found == [0.0, 0.1, inf, inf, 0.0, pytest.approx(2**-0.5)]
