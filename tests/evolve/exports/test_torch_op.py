"""The exported operator passes torch's own check, compiles without a break, and is the reference where it must be."""

import dataclasses
import importlib.util
import re
import sys
from types import ModuleType
from typing import Any

import pytest
import torch

from kbevolve.configs.errors import UsageError
from kbevolve.evolve.exports.torch_op import torch_op
from tests.evolve.exports.kernels import EVALUATION, measured


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    folder = tmp_path_factory.mktemp("exported") / "fast_op"
    folder.mkdir()
    for name, text in torch_op(measured()).items():
        (folder / name).write_text(text)
    spec = importlib.util.spec_from_file_location("fast_op", folder / "__init__.py", submodule_search_locations=[])
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["fast_op"] = importlib.util.module_from_spec(spec)
    module.__path__ = [str(folder)]
    state = torch.random.get_rng_state()
    spec.loader.exec_module(module)
    assert torch.equal(state, torch.random.get_rng_state()), "an import leaves the user's random numbers alone"
    return module


@pytest.fixture
def model(package: ModuleType) -> Any:
    package.kernel.CALLS.clear()
    torch._dynamo.reset()
    model = package.Operator()
    model.load_state_dict({name: torch.rand_like(tensor.float()) for name, tensor in model.state_dict().items()})
    return model.eval()


def weights_of(package: ModuleType, model: Any) -> list[torch.Tensor]:
    state = dict(model.named_parameters()) | dict(model.named_buffers())
    return [state[name] for name in package.WEIGHTS]


def inputs_of(rows: int = 6, **options: Any) -> list[torch.Tensor]:
    return [torch.randn(rows, 8, **options), torch.rand(5)]


@pytest.mark.parametrize("rows", [6, 9])
@pytest.mark.parametrize("gradient", [False, True])
def test_it_passes_torchs_own_check_of_operators(package: Any, model: Any, rows: int, gradient: bool) -> None:
    model.requires_grad_(gradient)
    given = (inputs_of(rows, requires_grad=gradient), weights_of(package, model))
    assert set(torch.library.opcheck(package.operator, given).values()) == {"SUCCESS"}


def test_the_kernel_runs_on_what_it_was_judged_with_and_agrees_with_the_reference(package: Any, model: Any) -> None:
    inputs = inputs_of()
    found, same = model(*inputs)
    assert package.kernel.CALLS == [(6, 8)]
    wanted, _ = package.Model.forward(model, *inputs)
    torch.testing.assert_close(found, wanted)
    assert torch.equal(same, inputs[0])


@pytest.mark.parametrize(
    "given",
    [
        inputs_of(7),
        [torch.randn(8, 6).T, torch.rand(5)],
        [torch.randn(6, 8), torch.rand(())],
    ],
    ids=["rows", "strides", "rank"],
)
def test_the_reference_runs_on_everything_else(package: Any, model: Any, given: list[torch.Tensor]) -> None:
    torch.testing.assert_close(model(*given), package.Model.forward(model, *given))
    assert package.kernel.CALLS == []


def test_other_types_and_devices_do_not_reach_the_kernel(package: Any, model: Any) -> None:
    given, weights = inputs_of(), weights_of(package, model)
    assert package.fits(given, weights)
    assert not package.fits([one.double() for one in given], [one.double() for one in weights])
    assert not package.fits([one.to("meta") for one in given], [one.to("meta") for one in weights])
    assert not package.fits(given, [one.to("meta") for one in weights])


def test_training_is_the_references(package: Any, model: Any) -> None:
    mean = model.norm.running_mean.clone()
    model.train()(*inputs_of())
    assert package.kernel.CALLS == []
    assert not torch.equal(mean, model.norm.running_mean)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_it_compiles_without_a_break_and_has_the_references_gradients(package: Any, model: Any, backend: str) -> None:
    inputs = inputs_of(requires_grad=True)
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    compiled(*inputs)[0].square().sum().backward()
    assert package.kernel.CALLS, "the kernel ran inside the compiled graph"
    found = [inputs[0].grad, *(one.grad for one in model.parameters())]
    inputs[0].grad = None
    model.zero_grad()
    package.Model.forward(model, *inputs)[0].square().sum().backward()
    for one, other in zip(found, [inputs[0].grad, *(one.grad for one in model.parameters())], strict=True):
        torch.testing.assert_close(one, other)
    assert compiled(*inputs_of(11))[0].shape == (11, 5)


def test_other_weights_are_followed(package: Any, model: Any) -> None:
    inputs = inputs_of()
    before = model(*inputs)[0]
    with torch.no_grad():
        model.linear.weight.neg_()
    assert not torch.equal(before, model(*inputs)[0])
    torch.testing.assert_close(model(*inputs), package.Model.forward(model, *inputs))


@pytest.mark.parametrize(("tag", "why"), [("prepacked-weights", "earlier call"), ("own-weight-names", "other names")])
def test_a_kernel_that_does_not_follow_given_weights_is_refused(tag: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        torch_op(measured(evaluation=dataclasses.replace(EVALUATION, tags=(tag,))))


def test_the_operator_is_named_after_problem_and_kernel() -> None:
    files = torch_op(measured())
    assert re.search(r'custom_op\("kbevolve::own_fused_py_[0-9a-f]{16}", ', files["__init__.py"])
    assert files["__init__.py"].startswith("# Exported by kbevolve")
    assert "ROWS = 6" in files["reference.py"]
