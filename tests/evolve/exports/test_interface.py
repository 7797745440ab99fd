"""What is written down of a problem: how a kernel is constructed and called, and what cannot be written."""

import dataclasses

import pytest

from kbevolve.configs.errors import UsageError
from kbevolve.evolve.exports.interface import Interface, interface_of
from tests.evolve.exports.kernels import EVALUATION, PLAIN, PROBLEM, measured


def test_arguments_inputs_and_weights_are_the_references() -> None:
    found = interface_of(measured())
    # Not the counter of batches, which is an integer, nor `shift`, which a checkpoint does not hold.
    assert found == Interface(
        arguments="[8]",
        inputs=("x", "scale"),
        weights=(
            "linear.weight", "linear.bias", "norm.weight", "norm.bias", "norm.running_mean", "norm.running_var",
        ),
    )  # fmt: skip


def test_a_problem_without_weights_has_none() -> None:
    assert interface_of(measured(problem=PLAIN)) == Interface(arguments="[]", inputs=("x",), weights=())


def test_arguments_behind_a_star_are_numbered() -> None:
    problem = PLAIN.replace("forward(self, x)", "forward(self, first, *rest)").replace("(x, dim", "(first, dim")
    problem = problem.replace("[torch.randn(6, 9)]", "[torch.randn(6, 9), torch.randn(6), 2]")
    assert interface_of(measured(problem=problem)).inputs == ("first", "input_1", "input_2")


def test_names_of_weights_are_names_of_arguments_and_no_inputs() -> None:
    found = Interface(arguments="[]", inputs=("x", "weight"), weights=("weight", "0.bias", "layer.norm.bias"))
    assert found.weight_arguments == ("weight_weight", "weight_0_bias", "layer_norm_bias")


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("return [8]", "return [torch.float32]", r"constructor takes \[torch.float32\]"),
        ("torch.rand(5)]", "[torch.rand(5)]]", r"get_inputs\(\) returns list"),
        ("return [torch.randn(ROWS, 8), torch.rand(5)]", "return [1.0]", r"get_inputs\(\) returns no tensor"),
        ("super().__init__()", "super().__init__(); float(torch.rand(()))", "does not run on tensors without data"),
    ],
)
def test_what_cannot_be_written_down_is_refused_with_the_way_out(old: str, new: str, why: str) -> None:
    assert old in PROBLEM
    with pytest.raises(UsageError, match=f"of own/Fused.py cannot be exported so: .*{why}.*; export it as modelnew"):
        interface_of(measured(problem=PROBLEM.replace(old, new)))


@pytest.mark.parametrize("tag", ["prepacked-weights", "own-weight-names"])
def test_a_kernel_that_does_not_follow_given_weights_is_refused(tag: str) -> None:
    with pytest.raises(UsageError, match="cannot be exported so: it"):
        interface_of(measured(evaluation=dataclasses.replace(EVALUATION, tags=(tag,))))
