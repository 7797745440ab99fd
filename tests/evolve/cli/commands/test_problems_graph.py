"""`kbevolve problems show --graph`: the regions of a problem, as a table and as JSON."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kbevolve.evaluators.analysis import roofline
from kbevolve.evaluators.analysis.roofline import Roofline
from kbevolve.evaluators.graph import process
from kbevolve.evaluators.graph.__main__ import main as trace_program
from kbevolve.evaluators.graph.__main__ import reason
from kbevolve.evaluators.program import ProgramError

SOURCE = """
import torch

ROWS = 1000000
CPU_SIZES = {"ROWS": 64}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(32, 48)

    def forward(self, x, y):
        return torch.relu(self.fc(x)) @ y


def get_inputs():
    return [torch.randn(ROWS, 32), torch.tril(torch.randn(48, 48))]


def get_init_inputs():
    return []
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Trace in this process, with known rates and a cache of its own."""

    def run_here(module: str, arguments: list[str], **options: Any) -> None:
        try:
            trace_program(Path(arguments[0]), Path(arguments[1]), arguments[2])
        except Exception as error:
            raise ProgramError(reason(error)) from None

    rates = Roofline(
        bytes_per_second=4e10, operations_per_second={"fp64": 1e11, "fp32": 2e11}, l2_bytes=0, headroom=2.0
    )
    monkeypatch.setenv("KBEVOLVE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(process, "run_program", run_here)
    monkeypatch.setattr(roofline, "measure", lambda device: rates)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "problem.py").write_text(SOURCE)
    return tmp_path / "problem.py"


def test_a_table_of_regions_with_times(kbevolve: Callable[..., Any], path: Path) -> None:
    outcome = kbevolve("problems", "show", path, "--graph", "--device", "cpu")
    assert outcome.code == 0, outcome.err
    header, *rows = outcome.out.split("\n\n")[0].splitlines()
    assert header.split()[:3] == ["region", "family", "computes"]
    assert [row.split()[0] for row in rows] == ["linear", "relu", "matmul"]
    assert "m 64, n 48, k 32" in rows[0]
    assert "self.fc.weight 48×32" in rows[0]
    assert "y 48×48 (lower triangular)" in rows[2]
    assert "3, of 3 operators, 0 of them views" in outcome.out
    assert "the regions give the reference's answer within 0" in outcome.out


@pytest.mark.skipif(torch.cuda.is_available(), reason="the times would be measured")
def test_without_the_device_the_sizes_are_its_own_and_the_times_are_dashes(
    kbevolve: Callable[..., Any], path: Path
) -> None:
    rows = kbevolve("problems", "show", path, "--graph").out.splitlines()
    assert "m 1000000, n 48, k 32" in rows[1]
    assert rows[1].split()[-2:] == ["–", "–"]


def test_scripts_get_all_that_a_template_needs(kbevolve: Callable[..., Any], path: Path) -> None:
    tree = json.loads(kbevolve("problems", "show", path, "--graph", "--device", "cpu", "--json").out)
    assert tree.keys() == {
        "regions", "inputs", "outputs", "written", "takes", "returns", "literals", "nodes", "tensors", "eager_ms",
        "difference",
    }  # fmt: skip
    linear, relu, matmul = tree["regions"]
    assert linear.keys() == {
        "name", "family", "form", "nodes", "operands", "outputs", "consumers", "constants", "contraction", "prologue",
        "epilogue", "flops", "bytes_read", "bytes_written", "roofline_ms", "eager_ms",
    }  # fmt: skip
    assert linear["epilogue"] == matmul["prologue"] == ["relu"]
    assert linear["contraction"]["n"] == [{"size": 48, "left": 0, "right": 32, "out": 1}]
    assert linear["operands"][1] == {
        "role": "right", "value": "self.fc.weight", "source": "self.fc.weight", "views": [], "structure": [],
        "spec": {"shape": [48, 32], "stride": [32, 1], "dtype": "float32"},
    }  # fmt: skip
    assert matmul["consumers"] == {"matmul": ["return"]}
    assert tree["nodes"][1]["arguments"] == {"self": {"value": "linear"}}
    assert tree["inputs"] == ["x", "y"]
    assert (tree["takes"], tree["returns"]) == ({"tuple": [{"tensor": 0}, {"tensor": 1}]}, {"tensor": 0})
    assert tree["difference"] == 0
    assert relu["eager_ms"] > 0


def test_a_problem_without_a_graph_says_why_in_one_line(kbevolve: Callable[..., Any], path: Path) -> None:
    path.write_text(SOURCE.replace("return torch.relu", "return x if x.sum() > 0 else torch.relu"))
    outcome = kbevolve("problems", "show", path, "--graph", "--device", "cpu")
    assert outcome.code == 1
    # In this process torch's own warnings are in front.
    assert outcome.err.splitlines()[-1].endswith("cannot be traced: its control flow depends on data")
