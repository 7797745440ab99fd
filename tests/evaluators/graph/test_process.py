"""Tracing in a process of its own: what it returns, what it says when it cannot, and its limits."""

import textwrap
from pathlib import Path

import pytest
import torch

from kbevolve.configs.catalog import builtin_names, find_problem
from kbevolve.configs.problem import Problem, parse_problem
from kbevolve.evaluators.disk_cache import DiskCache
from kbevolve.evaluators.graph import process
from kbevolve.evaluators.graph.__main__ import reason
from kbevolve.evaluators.graph.process import graph_for
from kbevolve.evaluators.graph.records import Family, Graph, UntraceableError
from kbevolve.evaluators.graph.trace_json import from_tree, to_tree
from kbevolve.evaluators.graph.tracer import trace_source

SOURCE = """
import torch

N = 100000
CPU_SIZES = {{"N": 64}}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(N, N))

    def forward(self, x):
        {forward}


def get_inputs():
    return [torch.randn(N, N)]


def get_init_inputs():
    return []
"""


def problem(forward: str, *, more: str = "") -> Problem:
    source = SOURCE.format(forward=textwrap.indent(textwrap.dedent(forward), " " * 8).strip()) + more
    return parse_problem(source, name="mine", path=Path("mine.py"))


def graph(found: Problem, folder: Path, *, seconds: float = 120.0) -> Graph:
    return graph_for(found, "cuda", "bf16", seconds=seconds, disk_cache=DiskCache(folder))


@pytest.mark.slow
def test_a_large_problem_is_traced_without_its_data_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # 40 GB of weights and as much of inputs.
    found = graph(problem("print('hello'); return (x @ self.weight.T) * float('inf')"), tmp_path)
    product, after = found.regions
    assert (product.family, after.family) == (Family.PRODUCT, Family.POINTWISE)
    assert product.flops == 2 * 10**15
    assert product.operands[0].spec.dtype == "bfloat16"
    assert product.bytes_read == 4 * 10**10
    assert found.trace.nodes[-1].arguments["other"] == float("inf")
    with monkeypatch.context() as patch:
        patch.setattr(process, "run_program", lambda *words, **options: pytest.fail("it was traced again"))
        assert graph(problem("print('hello'); return (x @ self.weight.T) * float('inf')"), tmp_path) == found
    small = graph_for(problem("return x + 1"), "cpu", "fp32", disk_cache=DiskCache(tmp_path))
    assert small.regions[0].operands[0].spec.shape == (64, 64)


@pytest.mark.parametrize(
    ("forward", "words"),
    [
        ("return x if x.sum() > 0 else -x", "its control flow depends on data"),
        ("return x[x > 0] @ x[x > 0]", "depends on data"),
        ("return x.to(no_such_name)", "NameError: name 'no_such_name' is not defined"),
        ("return x @ x[1:]", "RuntimeError: a and b must have same reduction dim"),
    ],
)
def test_what_cannot_be_traced_says_why_in_one_line(forward: str, words: str) -> None:
    found = problem(forward)
    with pytest.raises(Exception, match=r".") as caught:
        trace_source(found.source_for("cpu"), torch.float32)
    error = caught.value
    said = str(error) if isinstance(error, UntraceableError) else reason(error)
    assert words in said
    assert "\n" not in said


def test_a_trace_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    with pytest.raises(UntraceableError, match=r"mine cannot be traced: not done after 0\.2 s"):
        graph(problem("return x"), tmp_path, seconds=0.2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "seconds", "words"),
    [
        ("import time\nwhile True: time.sleep(0.01)\n", 20.0, "not done after 20 s"),
        ("import os\nos._exit(3)\n", 60.0, r"it calls os\._exit\(3\)"),
        ("import os\nos.kill(os.getpid(), 9)\n", 60.0, "ended with status -9"),
        ("import sys\nsys.exit('no')\n", 60.0, "no"),
        ("held = bytearray(64 << 30)\n", 60.0, "takes more than 8 GB"),
    ],
)
def test_a_file_that_hangs_ends_or_grows_is_stopped(more: str, seconds: float, words: str, tmp_path: Path) -> None:
    with pytest.raises(UntraceableError, match=f"mine cannot be traced: .*{words}"):
        graph(problem("return x", more=more), tmp_path, seconds=seconds)


def test_a_trace_survives_json() -> None:
    source = problem("return torch.min(torch.softmax(x.half(), 1), torch.tensor([0.5]))").source_for("cpu")
    found = trace_source(source, torch.float32)
    assert from_tree(to_tree(found)) == found
    assert dict(found.literals).popitem()[1] == (0.5,)
    for damaged in (None, [], {}, {**to_tree(found), "nodes": [1]}, {**to_tree(found), "tensors": {"x": 3}}):
        with pytest.raises(UntraceableError, match="wrote no trace"):
            from_tree(damaged)


@pytest.mark.slow
@pytest.mark.parametrize("name", builtin_names())
def test_every_built_in_problem_is_read_without_a_region_of_no_family(name: str) -> None:
    from kbevolve.evaluators.graph.regions import cut

    found = cut(trace_source(find_problem(name).source, torch.float32))
    assert found.nodes_by_family()[Family.OTHER] == 0
