"""Which constants of a file are sizes, and the texts at other sizes."""

from pathlib import Path

import pytest

from kbevolve.configs.catalog import builtin_names, find_problem
from kbevolve.configs.errors import EvaluatorError, UsageError
from kbevolve.configs.problem import Problem, constants_of, parse_problem
from kbevolve.evaluators.generality.dimensions import Dimensions
from kbevolve.evaluators.generality.shapes import drawn_sizes, given_sizes

CONVOLUTION = """
import torch
from torch import nn

batch_size = 2 * 4
in_channels, out_channels = 6, 12
height = 32
kernel_size = 3
groups = 3
scale = 2.0
CPU_SIZES = {"height": 16}


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, groups):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, groups=groups)

    def forward(self, x):
        return scale * self.conv(x)


def get_inputs():
    return [torch.randn(batch_size, in_channels, height, height)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, groups]
"""


def problem(source: str = CONVOLUTION) -> Problem:
    return parse_problem(source, name="convolution", path=Path("convolution.py"))


def test_sizes_are_axes_and_neither_kernels_nor_groups() -> None:
    found = Dimensions(problem().source_for("cpu"), name="convolution").found
    assert [(one.name, one.nominal, one.leads) for one in found] == [
        ("batch_size", 8, True),
        ("in_channels", 6, False),
        ("out_channels", 12, False),
        ("height", 16, False),
    ]


def test_what_is_drawn_runs_and_is_reproducible() -> None:
    variants = list(drawn_sizes(problem(), "cpu", seed=0))
    again = list(drawn_sizes(problem(), "cpu", seed=0))
    assert [one.words for one in variants] == [one.words for one in again]
    assert [one.words for one in variants] != [one.words for one in drawn_sizes(problem(), "cpu", seed=1)]
    assert len(variants) >= 8
    for variant in variants:
        text = variant.problem.source_for("cpu")
        assert constants_of(text) == {**constants_of(problem().source), **variant.sizes}
        assert not Dimensions(text, name="variant").nominal.failure
        assert variant.sizes["in_channels"] % 3 == 0


def test_a_given_size_changes_this_constant_only() -> None:
    variant = given_sizes(problem(), "cpu", {"out_channels": 15})
    assert constants_of(variant.problem.source_for("cpu")) == {
        "batch_size": 8, "in_channels": 6, "out_channels": 15, "height": 16, "kernel_size": 3, "groups": 3, "scale": 2.0
    }  # fmt: skip
    assert (variant.words, variant.problem.name) == ("out_channels=15", "convolution at out_channels=15")
    on_gpu = given_sizes(problem(), "cuda", {"out_channels": 15}).problem
    assert constants_of(on_gpu.source_for("cuda"))["height"] == 32


def test_a_constant_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match=r"no module constant heigth = number.*height"):
        given_sizes(problem(), "cpu", {"heigth": 15})


def test_a_file_with_numbers_in_its_functions_has_no_sizes() -> None:
    source = CONVOLUTION.replace("(batch_size, in_channels, height, height)", "(8, 6, 32, 32)")
    source = source.replace("[in_channels, out_channels,", "[6, 12,")
    with pytest.raises(UsageError, match=r"no module constant .* sets an axis"):
        list(drawn_sizes(problem(source), "cpu", seed=0))


def test_a_file_that_fails_is_named() -> None:
    source = CONVOLUTION.replace("import torch\n", "import torch\nimport no_such_module\n")
    with pytest.raises(EvaluatorError, match="convolution: its file fails without data: ModuleNotFoundError"):
        list(drawn_sizes(problem(source), "cpu", seed=0))


@pytest.mark.slow
@pytest.mark.parametrize("name", builtin_names())
def test_every_built_in_problem_has_other_sizes(name: str) -> None:
    assert len(list(drawn_sizes(find_problem(name), "cpu", seed=0))) >= 5
