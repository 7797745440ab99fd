"""The built-in suite: every problem runs on a CPU, fp32 agrees with fp64, and its answers depend on its inputs."""

import ast
from typing import Any

import pytest
import torch

from kbevolve.configs.catalog import builtin_names, find_problem

#: Centred relative error of an honest fp32 answer: the worst is 1.1e-6 (measured on all problems), TF32 begins at 3e-4.
FP32_ERROR = 1.2e-5
#: Bytes of one H200 that inputs and outputs in fp32 may take, so that their fp64 twins fit beside them.
MOST_BYTES = 5.5e9


def draw(namespace: dict[str, Any], seed: int) -> list[Any]:
    torch.manual_seed(seed)
    inputs: list[Any] = namespace["get_inputs"]()
    return inputs


def double(value: Any) -> Any:
    return value.double() if torch.is_tensor(value) and value.is_floating_point() else value


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one.double() - other.double()).norm())


@pytest.fixture(
    params=[pytest.param(name, marks=() if name == "L1/matmul" else pytest.mark.slow) for name in builtin_names()]
)
def namespace(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The problem's module at its CPU sizes."""
    names: dict[str, Any] = {}
    exec(find_problem(request.param).source_for("cpu"), names)
    return names


def test_it_runs_and_its_answers_say_something(namespace: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = namespace["Model"](*namespace["get_init_inputs"]())
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    first, second = draw(namespace, 1), draw(namespace, 2)
    copies = [value.clone() for value in first]
    with torch.no_grad():
        answer, other = model(*first), model(*second)
        assert torch.equal(model(*first), answer), "two calls on one input differ"
        truth, other_truth = (model.double()(*map(double, inputs)) for inputs in (first, second))
    assert all(torch.equal(value, copy) for value, copy in zip(first, copies, strict=True)), "it changes its inputs"
    model.float()
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(tensor, state[name], msg=f"forward changes {name}")
    assert answer.dtype == torch.float32
    assert truth.dtype == torch.float64
    assert torch.isfinite(answer).all()

    template = (truth + other_truth) / 2
    assert distance(answer, truth) < FP32_ERROR * distance(truth, template)
    # Neither zeros nor a constant nor the answer for other inputs may pass for the answer, even at half precision.
    for cheap in (torch.zeros_like(answer), answer.mean().expand_as(answer), other):
        assert not torch.allclose(cheap, answer, rtol=1e-2, atol=1e-2)
        assert distance(cheap, truth) > 0.05 * distance(truth, torch.zeros_like(truth))


@pytest.mark.parametrize("name", builtin_names())
def test_the_real_sizes_fit_a_gpu_with_their_fp64_twins(name: str) -> None:
    names: dict[str, Any] = {}
    exec(find_problem(name).source, names)
    # On the meta device tensors have shapes, no storage.
    with torch.device("meta"), torch.no_grad():
        model, inputs = names["Model"](*names["get_init_inputs"]()), names["get_inputs"]()
        output = model(*inputs)
    assert all(value.device.type == "meta" for value in inputs), "get_inputs names a device"
    size = sum(value.numel() * value.element_size() for value in [*inputs, output, *model.parameters()])
    assert 1e8 < size < MOST_BYTES


@pytest.mark.parametrize("name", builtin_names())
def test_it_says_what_it_is_and_has_cpu_sizes(name: str) -> None:
    problem = find_problem(name)
    docstring = ast.get_docstring(ast.parse(problem.source))
    assert docstring is not None
    assert "bound" in docstring
    assert len(docstring.split("\n\n")) >= 2
    assert "\n" not in docstring.split("\n\n")[0]
    assert problem.cpu_sizes
