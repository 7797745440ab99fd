from pathlib import Path

import pytest
import torch

from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.problem import parse_problem
from kbevolve.evaluators.correctness import reference
from kbevolve.evaluators.correctness.inputs import nominal
from kbevolve.evaluators.correctness.reference import Reference
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.device.memory import is_out_of_memory

CPU = find_device("cpu")


def make(forward: str, *, more: str = "", inputs: str = "[torch.rand(16, 8)]", precision: str = "fp32") -> Reference:
    source = f"""
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        {more or "pass"}

    def forward(self, x, *others):
        {forward}

def get_inputs():
    return {inputs}

def get_init_inputs():
    return []
"""
    problem = parse_problem(source, name="tests/p", path=Path("p.py"))
    return Reference(problem, CPU, precision, weight_seed=3)


def output(made: Reference, seed: int = 1) -> torch.Tensor:
    return made.output(*made.inputs(seed, nominal))[1][0]


def truth(made: Reference, seed: int = 1) -> torch.Tensor:
    tensors, exact = made.truth(*made.inputs(seed, nominal))
    assert exact
    return tensors[0]


# ---- weights --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_other_weights_apply_inside_the_block_only(precision: str) -> None:
    made = make("return self.layer(x)", precision=precision)
    before, exact_before = output(made), truth(made)
    state = made.reweighted(8)
    assert {name: tensor.dtype for name, tensor in state.items()} == {
        name: tensor.dtype for name, tensor in made.model.state_dict().items()
    }
    with made.weights(state):
        x = made.inputs(1, nominal)[1][0]
        expected = torch.nn.functional.linear(x.double(), state["layer.weight"].double(), state["layer.bias"].double())
        assert torch.allclose(truth(made), expected, rtol=1e-12)
        assert torch.allclose(output(made).double(), expected, rtol=3e-2, atol=3e-2)
        assert not torch.allclose(truth(made), exact_before)
    assert torch.equal(output(made), before)
    assert torch.equal(truth(made), exact_before)


def test_the_same_seed_gives_the_weights_that_the_model_has() -> None:
    made = make("return self.layer(x)")
    same = made.reweighted(3)
    assert all(torch.equal(same[name], tensor) for name, tensor in made.model.state_dict().items())
    other = made.reweighted(4)
    assert not torch.equal(same["layer.weight"], other["layer.weight"])


def test_the_weights_are_restored_after_a_failure() -> None:
    made = make("return self.layer(x)")
    before = output(made)
    with pytest.raises(KeyboardInterrupt), made.weights(made.reweighted(8)):
        raise KeyboardInterrupt
    assert torch.equal(output(made), before)


def test_recurrent_layers_follow_their_weights() -> None:
    made = make(
        "return self.rnn(x)[0]", more="self.rnn = nn.LSTM(8, 4, batch_first=True)", inputs="[torch.rand(2, 5, 8)]"
    )
    before = output(made), truth(made)
    with made.weights(made.reweighted(8)):
        assert not torch.allclose(output(made), before[0])
        assert torch.allclose(output(made).double(), truth(made), atol=1e-5)
    assert torch.equal(output(made), before[0])
    assert torch.equal(truth(made), before[1])


# ---- state ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "forward"),
    [
        ("self.register_buffer('seen', torch.zeros(8))", "self.seen += x.mean(0); return x + self.seen"),
        ("self.register_buffer('seen', torch.zeros(8))", "self.seen = self.seen + 1; return x + self.seen"),
        ("self.seen = torch.zeros(8)", "self.seen.add_(1); return x + self.seen"),
        ("self.seen = 0", "self.seen += 1; return x + self.seen"),
        ("", "self.seen = getattr(self, 'seen', 0) + 1; return x + self.seen"),
        ("self.register_buffer('seen', torch.zeros(16, 8))", "self.seen += x; return self.seen"),
        ("self.norm = nn.BatchNorm1d(8).train()", "return self.norm(x)"),
        ("self.drop = nn.Dropout(0.5)", "return self.drop(x)"),
    ],
)
def test_two_calls_on_the_same_inputs_agree(more: str, forward: str) -> None:
    made = make(forward, more=more)
    first = output(made)
    kept = first.clone()
    output(made, seed=2)
    assert torch.equal(output(made), kept)
    assert torch.equal(first, kept)
    assert torch.equal(truth(made), truth(made))
    if "Dropout" in more:
        assert torch.equal(first, made.inputs(1, nominal)[1][0])


def test_an_output_that_is_a_parameter_outlives_the_weights() -> None:
    made = make("return self.layer.weight")
    before = output(made)
    kept = before.clone()
    with made.weights(made.reweighted(8)):
        assert torch.equal(before, kept)


@pytest.mark.parametrize(
    ("forward", "in_place", "aliasing"),
    [
        ("return x * 2", False, False),
        ("return x.mul_(2)", True, True),
        ("x.mul_(2); return x + 1", True, False),
        ("return x.view(8, 16)", False, True),
        ("return x[2:]", False, True),
        ("return x", False, True),
        ("return x, x * 2", False, True),
        ("return x.data.zero_() + 1", True, False),
    ],
)
def test_side_effects_of_the_reference(forward: str, in_place: bool, aliasing: bool) -> None:
    made = make(forward)
    assert any(made.find_side_effects()) is aliasing
    assert made.written_inputs == ((0,) if in_place else ())
    assert made.written_state == ()
    structure, tensors = made.inputs(1, nominal)
    before = tensors[0].clone()
    made.output(structure, tensors)
    made.truth(structure, tensors)
    assert torch.equal(tensors[0], before)


def test_unchanged_nan_inputs_are_no_change() -> None:
    made = make("return x + 1", inputs="[torch.full((4, 8), float('nan'))]")
    assert made.find_side_effects() == (False,)
    assert made.written_inputs == ()


def test_what_the_reference_updates_is_an_output_and_is_restored() -> None:
    made = make("self.seen += x.mean(0); return x.add_(1)", more="self.register_buffer('seen', torch.zeros(8))")
    made.find_side_effects()
    assert made.written_inputs == (0,)
    assert made.written_state == ("seen",)
    structure, tensors = made.inputs(1, nominal)
    _, leaves = made.output(structure, tensors)
    assert len(leaves) == 3
    assert torch.equal(leaves[1], tensors[0] + 1)
    assert torch.allclose(leaves[2], tensors[0].mean(0))
    assert not made.model.state_dict()["seen"].any()
    (returned,) = made.returned(structure, tensors)
    assert torch.equal(returned, tensors[0] + 1)


# ---- memory ---------------------------------------------------------------------------------------------------------


def sizes_seen(made: Reference, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of each computation in fp64, from here on."""
    seen: list[int] = []
    call = made._call

    def watched(model: torch.nn.Module, structure: object, tensors: list[torch.Tensor]) -> object:
        if tensors[0].dtype == torch.float64:
            seen.append(len(tensors[0]))
        return call(model, structure, tensors)

    monkeypatch.setattr(made, "_call", watched)
    return seen


@pytest.mark.parametrize("forward", ["return self.layer(x)", "return self.layer(x), x.sum(1)"])
def test_a_truth_too_large_for_memory_is_computed_in_slices(forward: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = truth(make(forward))
    made = make(forward)
    output(made)
    # Room for about a quarter of 16 x 8 inputs and as many outputs.
    monkeypatch.setattr(reference, "free_bytes", lambda device: 2400)
    seen = sizes_seen(made, monkeypatch)
    assert torch.allclose(truth(made), whole, rtol=1e-13)
    assert max(seen) == 4
    assert truth(made).dtype == torch.float64


def test_a_truth_that_runs_out_of_memory_is_computed_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    forward = """
        if x.dtype == torch.float64 and len(x) > 4:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return self.layer(x)"""
    made = make(forward)
    monkeypatch.setattr(reference, "free_bytes", lambda device: 1 << 40)
    assert torch.allclose(truth(made), truth(make("return self.layer(x)")), rtol=1e-13)


def test_a_truth_that_was_in_fp64_is_never_in_single_precision_for_lack_of_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = make("return self.layer(x) - x.mean(0)")
    monkeypatch.setattr(reference, "free_bytes", lambda device: 1 << 40)
    whole = truth(made)

    def fails(*_: object) -> None:
        raise EvaluatorError("no memory") from torch.OutOfMemoryError("CUDA out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(made, "_in_fp64", fails)
        with pytest.raises(EvaluatorError, match="no memory for the truth in fp64") as caught:
            truth(made)
        assert is_out_of_memory(caught.value)
    assert torch.equal(truth(made), whole)


def test_samples_that_depend_on_each_other_leave_the_truth_in_single_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    made = make("return self.layer(x) - x.mean(0)")
    structure, tensors = made.inputs(1, nominal)
    made.output(structure, tensors)
    monkeypatch.setattr(reference, "free_bytes", lambda device: 2400)
    (found,), exact = made.truth(structure, tensors)
    assert not exact
    assert found.dtype == torch.float32


def test_code_that_rejects_fp64_leaves_the_truth_in_single_precision() -> None:
    made = make("assert x.dtype != torch.float64; return self.layer(x)")
    (found,), exact = made.truth(*made.inputs(1, nominal))
    assert not exact
    assert found.dtype == torch.float32


def test_a_package_that_a_problem_lacks_is_named_with_the_command_that_installs_it() -> None:
    with pytest.raises(EvaluatorError, match="No module named 'no_such_package'; install it: pip install no_such_pack"):
        make("return x", inputs="[__import__('no_such_package')]").inputs(1, nominal)


def test_inputs_that_are_no_list_are_named() -> None:
    with pytest.raises(EvaluatorError, match=r"get_inputs\(\) fails on cpu: TypeError: it returned int, not a list"):
        make("return x", inputs="5").inputs(1, nominal)
