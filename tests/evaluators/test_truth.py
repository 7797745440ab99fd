import math

import pytest
import torch

from kbevolve.evaluators.truth import Answer, all_finite, allclose, centred_errors, precision_class, scale_of

SHAPE = (300, 200)


def answer_of(truth: torch.Tensor, reference: torch.Tensor | None = None) -> Answer:
    reference = truth.float() if reference is None else reference
    return Answer(truth=[truth], reference=[reference], finite=[all_finite(truth)])


def draws(count: int = 4) -> list[torch.Tensor]:
    """Truths like a long sum's of positive numbers: a large common part, a small one that depends on the draw."""
    torch.manual_seed(1)
    return [100 + torch.rand(SHAPE, dtype=torch.float64) for _ in range(count)]


def error_of(output: torch.Tensor, truth: torch.Tensor, mean: torch.Tensor | None = None) -> float:
    answer = answer_of(truth)
    return centred_errors([output], answer, scale_of(answer, [mean], "fp32").spread)[0]


def test_a_constant_scores_one_however_close_it_is_in_relative_terms() -> None:
    truth = draws()[0]
    constant = torch.full(SHAPE, 100.5)
    assert torch.allclose(constant.double(), truth, rtol=1e-2)
    assert error_of(constant, truth) == pytest.approx(1.0, rel=0.01)


def test_a_remembered_answer_scores_about_one_with_the_mean_over_draws() -> None:
    truths = draws()
    mean = torch.stack(truths).mean(0)
    assert error_of(truths[1].float(), truths[0], mean) > 1.0
    assert error_of(truths[0].float(), truths[0], mean) < 1e-4


@pytest.mark.parametrize(
    ("dtype", "name"),
    [(torch.float64, "fp64"), (torch.float32, "fp32"), (torch.float16, "tf32"), (torch.bfloat16, "half")],
)
def test_rounding_to_each_precision_is_told_apart(dtype: torch.dtype, name: str) -> None:
    torch.manual_seed(2)
    truth = torch.randn(SHAPE, dtype=torch.float64)
    assert precision_class(error_of(truth.to(dtype), truth)) == name


def test_garbage_has_no_precision() -> None:
    assert precision_class(1.0) is None
    assert precision_class(math.inf) is None


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_one_element_that_is_not_finite_is_an_infinite_error(value: float) -> None:
    truth = draws()[0]
    output = truth.float()
    output[7, 9] = value
    assert error_of(output, truth) == math.inf


def test_infinities_of_the_truth_must_be_met() -> None:
    truth = draws()[0]
    truth[0, 0] = -math.inf
    assert error_of(truth.float(), truth) < 1e-4
    wrong = truth.float()
    wrong[0, 0] = 0
    assert error_of(wrong, truth) == math.inf


def test_integers_count_the_elements_that_differ() -> None:
    truth = torch.arange(100)
    answer = answer_of(truth, truth)
    scale = scale_of(answer, [None], "fp32")
    output = truth.clone()
    output[:5] += 1
    assert centred_errors([output], answer, scale.spread) == [0.05]
    assert scale.bound == 0.0


def test_an_answer_of_zeros_still_has_a_scale() -> None:
    truth = torch.zeros(SHAPE, dtype=torch.float64)
    assert error_of(torch.zeros(SHAPE), truth) == 0.0
    assert error_of(torch.full(SHAPE, 0.5), truth) == pytest.approx(0.5)


def test_the_bound_follows_an_inaccurate_reference() -> None:
    torch.manual_seed(3)
    truth = torch.randn(SHAPE, dtype=torch.float64)
    exact = scale_of(answer_of(truth), [None], "fp32")
    rough = scale_of(answer_of(truth, truth.bfloat16()), [None], "fp32")
    assert exact.bound == 5e-5
    assert rough.bound == pytest.approx(4 * rough.reference_error)


def test_allclose_is_kernelbenchs() -> None:
    truth = torch.ones(SHAPE, dtype=torch.float64)
    answer = answer_of(truth)
    assert allclose([torch.full(SHAPE, 1.0001)], answer, "fp32")
    assert not allclose([torch.full(SHAPE, 1.0003)], answer, "fp32")
    assert allclose([torch.full(SHAPE, 1.015)], answer, "fp16")
    assert not allclose([torch.full(SHAPE, math.nan)], answer, "fp16")
