from collections.abc import Callable
from pathlib import Path
from threading import Lock

import pytest
import torch

from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.problem import parse_problem
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.correctness import kept, prepared
from kbevolve.evaluators.correctness.draws import Draw
from kbevolve.evaluators.correctness.inputs import (
    Only,
    alone,
    diminished,
    enlarged,
    heterogeneous,
    integers,
    mixed_rows,
    nominal,
    scaled_128x,
    shrunk,
    shuffled,
    signed,
    special,
)
from kbevolve.evaluators.correctness.prepared import LESS_MEMORY, PreparedProblem
from kbevolve.evaluators.correctness.reference import Reference
from kbevolve.evaluators.correctness.truth import accepts, deviation
from kbevolve.evaluators.device.devices import find_device

CPU = find_device("cpu")


def prepare(
    forward: str, inputs: str = "[torch.rand(16, 8)]", *, trials: int = 4, precision: str = "fp32"
) -> PreparedProblem:
    source = f"""
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.scale = scale

    def forward(self, *inputs):
        x = inputs[0]
        return {forward}

def get_inputs():
    return {inputs}

def get_init_inputs():
    return [2.0]
"""
    settings = EvaluationSettings.model_validate({"trials": trials, "precision": precision})
    return PreparedProblem(parse_problem(source, name="tests/p", path=Path("p.py")), CPU, settings)


def transforms_of(problem: PreparedProblem) -> list[Callable[..., object]]:
    return [draw.transform for draw in problem._draws]


def test_trials_alternate_distributions_and_no_two_are_equal() -> None:
    problem = prepare("self.scale * nn.functional.linear(x, self.layer.weight)", trials=7)
    # Special numbers and a repetition take the place of the second and third nominal draw.
    kinds = [nominal, signed, heterogeneous, enlarged, diminished, special, Only(alone, 0)]
    assert transforms_of(problem) == kinds
    drawn = [problem.trial(number).inputs[0] for number in range(4)]
    assert all(not torch.equal(drawn[i], drawn[j]) for i in range(4) for j in range(i))
    assert float(drawn[0].min()) >= 0
    assert float(drawn[1].min()) < 0
    assert [problem.trial(number).transform for number in range(7)] == kinds


def test_the_mean_is_of_three_nominal_draws_however_many_are_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    solved: list[object] = []
    real = PreparedProblem.solve
    monkeypatch.setattr(
        PreparedProblem, "solve", lambda self, draw, *rest: solved.append(draw) or real(self, draw, *rest)
    )
    problem = prepare("self.layer(x)", trials=7)
    assert transforms_of(problem).count(nominal) == 1
    begun = len(solved)
    _, means = problem._measure(problem._draws)
    averaged = {draw for draw in solved[begun:] if draw.transform is nominal}  # type: ignore[attr-defined]
    assert len(averaged) == 3
    truths = [problem.solve(draw)[1].truth[0] for draw in averaged]  # type: ignore[arg-type]
    assert means[0] is not None
    assert torch.allclose(means[0], sum(truths) / 3, rtol=1e-12)  # type: ignore[arg-type]


def test_every_preparation_draws_anew() -> None:
    one, other = prepare("x * 2"), prepare("x * 2")
    assert not torch.equal(one.trial(0).inputs[0], other.trial(0).inputs[0])
    assert one.weights.seed != other.weights.seed


def test_a_reference_defined_on_positive_numbers_gets_only_those() -> None:
    problem = prepare("torch.log(x + 0.1)", trials=6)
    assert transforms_of(problem)[:5] == [nominal, shrunk, mixed_rows, nominal, scaled_128x]
    assert problem.tags == ()


def test_a_reference_without_usable_transforms_is_tagged() -> None:
    # arccos is defined on [-1, 1] and the root above 0.49: every transform leaves that range.
    problem = prepare("torch.arccos(x) + torch.sqrt(x - 0.49)", "[0.5 + torch.rand(16, 8) / 2]")
    # Special numbers make a few elements NaN; the others are compared.
    assert transforms_of(problem) == [nominal] * 3 + [special]
    assert problem.tags == ("nominal-inputs-only",)


def test_integers_stay_in_the_range_of_the_reference() -> None:
    problem = prepare("nn.functional.one_hot(x, 5).float() * 2", "[torch.randint(0, 5, (16,))]")
    assert integers not in transforms_of(problem)
    for number in range(problem.trials):
        assert set(problem.trial(number).inputs[0].tolist()) <= set(range(5))
    assert integers in transforms_of(prepare("x.cumsum(0) + self.scale", "[torch.randint(0, 5, (16,))]"))


def test_one_input_that_must_stay_positive_leaves_the_other_transformed() -> None:
    problem = prepare("torch.log(x) + inputs[1]", "[0.1 + torch.rand(16, 8), torch.rand(16, 8)]", trials=7)
    assert transforms_of(problem)[1] is shrunk
    assert Only(signed, 1) in transforms_of(problem)
    assert Only(signed, 0) not in transforms_of(problem)


def test_an_input_that_never_changes_is_changed_or_tagged() -> None:
    problem = prepare("x * inputs[1]", "[torch.rand(16, 8), torch.arange(8) % 2 == 0]")
    assert Only(shuffled, 1) in transforms_of(problem)
    assert problem.tags == ()
    assert "constant-input" in prepare("x * inputs[1]", "[torch.rand(16, 8), 3]").tags
    for constant in ("torch.zeros(8)", "torch.ones(8, dtype=torch.bool)", "torch.eye(16, 8)", "torch.tensor(0.0)"):
        assert Only(shuffled, 1) in transforms_of(prepare("x * inputs[1] + x", f"[torch.rand(16, 8), {constant}]"))


def test_second_weights_come_with_the_inputs_of_the_first_trial() -> None:
    problem = prepare("self.layer(x)", "[torch.randn(16, 8)]")
    first, second = problem.trial(0), problem.second_trial(0)
    assert torch.equal(first.inputs[0], second.inputs[0])
    assert not torch.allclose(first.expected.truth[0], second.expected.truth[0], rtol=1e-2)


def test_while_a_trial_with_other_weights_is_computed_the_main_weights_stay() -> None:
    problem = prepare("self.layer(x)")
    before = {name: tensor.clone() for name, tensor in problem.weights.tensors.items()}
    with problem.reference.weights(problem.second_weights[0].tensors):
        # Other threads load them into kernels and compare kernels' state with them.
        assert all(torch.equal(before[name], tensor) for name, tensor in problem.weights.tensors.items())
        assert not torch.equal(before["layer.weight"], problem.reference.state()["layer.weight"])


def test_special_numbers_are_left_out_where_they_reach_most_of_the_answer() -> None:
    assert special not in transforms_of(prepare("x - x.mean()"))


def test_a_trial_that_does_not_fit_is_computed_again_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_SHARE", 0.0)
    problem = prepare("self.layer(x)")
    assert not len(problem.kept)
    one, other = problem.trial(1), problem.trial(1)
    assert one.inputs[0] is not other.inputs[0]
    assert torch.equal(one.inputs[0], other.inputs[0])
    assert torch.equal(one.expected.truth[0], other.expected.truth[0])
    assert one.scale == other.scale
    assert one.scale.reference_error < 1e-5


def test_where_not_all_trials_fit_only_the_first_inputs_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = prepare("self.layer(x)")
    assert len(whole.kept) == whole.trials + 1, "all, and the one with other weights"
    assert whole.trial(1).inputs[0] is whole.trial(1).inputs[0]
    assert whole.trial(0).expected.reference
    assert not whole.trial(1).expected.reference, "outputs on changed inputs are compared with the truth only"
    # Inputs have 512 bytes, a truth 1024, the reference's output 512.
    monkeypatch.setattr(prepared, "room_for_trials", lambda *_, **__: 3500)
    problem = prepare("self.layer(x)")
    assert not len(problem.kept)
    assert problem.first_inputs()[0] is problem.first_inputs()[0]
    assert transforms_of(problem)[:3] == [nominal, signed, heterogeneous]
    one, other = problem.trial(1), problem.trial(1)
    assert one.expected.truth[0] is not other.expected.truth[0]
    assert torch.equal(one.expected.truth[0], other.expected.truth[0])
    assert not one.expected.reference
    assert problem.trial(0).expected.reference
    monkeypatch.setattr(prepared, "room_for_trials", lambda *_, **__: 500)
    bare = prepare("self.layer(x)")
    one_draw, again = bare.first_inputs(), bare.first_inputs()
    assert one_draw[0] is not again[0]
    assert torch.equal(one_draw[0], again[0])


def test_of_trials_that_do_not_fit_one_is_in_memory_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with prepare("self.layer(x)").kept.room_for_one as entered, prepare("self.layer(x)").kept.room_for_one:
        assert entered is None
    monkeypatch.setattr(prepared, "room_for_trials", lambda *_, **__: 0)
    room = prepare("self.layer(x)").kept.room_for_one
    assert isinstance(room, type(Lock()))
    with room:
        assert not room.acquire(blocking=False)
    assert room.acquire(blocking=False)


def test_scales_are_the_same_whether_trials_fit_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = iter([*range(1, 1000), *range(1, 1000)])
    monkeypatch.setattr(prepared.secrets, "randbits", lambda bits: next(seeds))
    whole = prepare("self.layer(x)")
    seeds = iter(range(1, 1000))
    monkeypatch.setattr(kept, "_SHARE", 0.0)
    bare = prepare("self.layer(x)")
    for number in range(whole.trials):
        one, other = whole.trial(number).scale, bare.trial(number).scale
        assert one.spread == pytest.approx(other.spread, rel=1e-6)
        assert one.bound == other.bound


def pairs(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows times powers of two as sums of two fp16 numbers, and the inverse powers; what is not finite as zero."""
    finite = torch.where(tensor.isfinite(), tensor, 0.0).double()
    power = 2.0 ** (14 - finite.abs().amax(1, keepdim=True).clamp(min=2.0**-120).log2().floor())
    high = (finite * power).half().double()
    return high, (finite * power - high).half().double(), 1 / power


def test_the_mean_that_is_not_kept_is_that_of_the_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared, "room_for_trials", lambda *_, **__: 0)
    problem = prepare("torch.cat([x, x + 5])", "[torch.rand(64, 256)]")
    assert problem._nominal_means is None
    (mean,) = problem.nominal_means
    assert mean is not None
    assert float(mean[:64].mean()) == pytest.approx(0.5, abs=0.02)
    assert float(mean[64:].mean()) == pytest.approx(5.5, abs=0.02)


def test_a_loss_keeps_no_memory_of_its_summands() -> None:
    problem = prepare("nn.functional.smooth_l1_loss(*inputs)", "[torch.rand(64, 64), torch.rand(64, 64)]", trials=1)
    expected = problem.trial(0).expected
    for tensor in (*expected.truth, *expected.reference):
        assert tensor.untyped_storage().nbytes() == tensor.nbytes


@pytest.mark.parametrize("attempt", range(4))
def test_a_product_of_fp16_pairs_is_accepted(attempt: int) -> None:
    """An honest way to compute in the class of fp32: each row of one operand and column of the other has a scale."""
    problem = prepare("x @ inputs[1]", "[torch.rand(64, 96), torch.rand(96, 80)]", trials=7)
    assert special in transforms_of(problem)
    for number in range(problem.trials):
        trial = problem.trial(number)
        a, b = trial.inputs
        (ah, al, ia), (bh, bl, ib) = pairs(a), pairs(b.mT)
        product = (ah @ bh.mT + ah @ bl.mT + al @ bh.mT) * ia * ib.mT
        spoiled = ~(a @ b).isfinite()
        found = torch.where(spoiled, a @ b, product.float())
        assert accepts(trial.scale, deviation([found], trial.expected, trial.scale)), trial.transform


def test_the_truth_is_in_fp64() -> None:
    problem = prepare("self.layer(x)")
    trial = problem.trial(0)
    assert trial.expected.truth[0].dtype is torch.float64
    assert trial.expected.reference[0].dtype is torch.float32
    assert 0 < trial.scale.reference_error < 1e-5


def test_without_fp64_the_truth_is_fp32_and_tagged() -> None:
    problem = prepare("self.layer(x) if x.dtype == torch.float32 else [][0]")
    assert "truth-fp32" in problem.tags
    assert problem.trial(0).scale.reference_error == 0.0


def test_half_precision_tasks_get_half_inputs_and_weights() -> None:
    problem = prepare("self.layer(x)", precision="bf16")
    assert problem.trial(0).inputs[0].dtype is torch.bfloat16
    assert {tensor.dtype for tensor in problem.weights.tensors.values()} == {torch.bfloat16}


def test_several_inputs_and_outputs_have_places_of_their_own() -> None:
    problem = prepare("(inputs[1] * 2, {'a': x})", "[torch.rand(16, 8).T, torch.rand(3), 7]")
    assert problem.output_structure == {"tuple": [{"tensor": 0}, {"dict": [["a", {"tensor": 1}]]}]}
    places = [*problem.input_places, *problem.output_places]
    ends = [place.offset + 4 * torch.Size(place.shape).numel() for place in places]
    assert all(end <= after.offset for end, after in zip(ends, places[1:], strict=False))
    assert problem.shared_bytes >= ends[-1]
    # A transposed input keeps its strides.
    memory = torch.zeros(problem.shared_bytes, dtype=torch.uint8)
    assert problem.input_places[0].view(memory).stride() == (1, 8)


@pytest.mark.parametrize(
    ("forward", "words"),
    [
        ("object()", "forward() returns a object"),
        ("3.0", "forward() returns no tensor"),
        ("torch.rand(16, 8)", "random or unstable"),
    ],
)
def test_a_reference_that_cannot_be_judged_is_an_error(forward: str, words: str) -> None:
    with pytest.raises(EvaluatorError, match=words.replace("(", r"\(").replace(")", r"\)")):
        prepare(forward)


def test_inputs_that_are_left_out_for_lack_of_memory_are_tagged(monkeypatch: pytest.MonkeyPatch) -> None:
    real = prepared.solve

    def short_of_memory(reference: Reference, draw: Draw) -> object:
        if draw.transform is signed:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(reference, draw)

    monkeypatch.setattr(prepared, "solve", short_of_memory)
    problem = prepare("self.layer(x)", trials=7)
    assert signed not in transforms_of(problem)
    assert shrunk in transforms_of(problem), "the milder kind fits"
    assert problem.tags == (LESS_MEMORY,)
