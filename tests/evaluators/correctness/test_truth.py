import math
from dataclasses import replace

import pytest
import torch

from kbevolve.evaluators.correctness.rule import CAPS, RUN
from kbevolve.evaluators.correctness.truth import (
    Deviation,
    ExpectedOutput,
    accepts,
    all_finite,
    allclose,
    classify,
    deviation,
    is_usable,
    scale_of,
)

SHAPE = (300, 200)


def expected_of(truth: torch.Tensor, reference: torch.Tensor | None = None) -> ExpectedOutput:
    reference = truth.float() if reference is None else reference
    return ExpectedOutput(truth=[truth], reference=[reference], finite=[all_finite(truth)])


def draws(count: int = 4) -> list[torch.Tensor]:
    """Truths like long sums of positive numbers: a large common part, and a small one that depends on the draw."""
    torch.manual_seed(1)
    return [100 + torch.rand(SHAPE, dtype=torch.float64) for _ in range(count)]


def deviation_of(output: torch.Tensor, truth: torch.Tensor, mean: torch.Tensor | float | None = None) -> Deviation:
    expected = expected_of(truth)
    return deviation([output], expected, scale_of(expected, [mean], "fp32"))


def error_of(output: torch.Tensor, truth: torch.Tensor, mean: torch.Tensor | float | None = None) -> float:
    return deviation_of(output, truth, mean).error


def test_a_constant_scores_one_however_close_it_is_in_relative_terms() -> None:
    truth = draws()[0]
    constant = torch.full(SHAPE, 100.5)
    assert torch.allclose(constant.double(), truth, rtol=1e-2)
    assert error_of(constant, truth) == pytest.approx(1.0, rel=0.01)
    assert error_of(constant, truth, 100.5) == pytest.approx(1.0)


def test_a_remembered_answer_scores_about_one_with_the_mean_over_draws() -> None:
    truths = draws()
    mean = torch.stack(truths).mean(0)
    assert error_of(truths[1].float(), truths[0], mean) > 1.0
    assert error_of(truths[0].float(), truths[0], mean) < 1e-4


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_one_element_that_is_not_finite_is_an_infinite_error(value: float) -> None:
    truth = draws()[0]
    output = truth.float()
    output[7, 9] = value
    assert deviation_of(output, truth) == Deviation(error=math.inf, worst_tile=math.inf, worst_row=math.inf)


def test_the_output_must_have_the_infinities_of_the_truth() -> None:
    truth = draws()[0]
    truth[0, 0] = -math.inf
    assert error_of(truth.float(), truth) < 1e-4
    wrong = truth.float()
    wrong[0, 0] = 0
    assert error_of(wrong, truth) == math.inf


def test_integers_count_the_elements_that_differ() -> None:
    truth = torch.arange(100)
    expected = expected_of(truth, truth)
    scale = scale_of(expected, [None], "fp32")
    output = truth.clone()
    output[:5] += 1
    assert deviation([output], expected, scale).error == 0.05
    assert scale.bound == 0.0
    assert accepts(scale, deviation([truth.clone()], expected, scale))
    assert not accepts(scale, deviation([output], expected, scale))


def test_an_answer_of_zeros_still_has_a_scale() -> None:
    truth = torch.zeros(SHAPE, dtype=torch.float64)
    assert deviation_of(torch.zeros(SHAPE), truth) == Deviation(error=0.0, worst_tile=0.0)
    assert error_of(torch.full(SHAPE, 0.5), truth) == pytest.approx(0.5)


def test_an_answer_without_elements_is_right() -> None:
    empty = torch.zeros(0, 3, dtype=torch.float64)
    assert deviation_of(empty.float(), empty) == Deviation(error=0.0, worst_tile=0.0)


def test_the_worst_of_several_outputs_counts() -> None:
    torch.manual_seed(4)
    truth = [torch.randn(500, dtype=torch.float64), torch.arange(10), torch.randn(700, dtype=torch.complex128)]
    expected = ExpectedOutput(truth=truth, reference=[truth[0].float(), truth[1], truth[2].cfloat()], finite=[True] * 3)
    scale = scale_of(expected, [None] * 3, "fp32")
    assert accepts(scale, deviation(expected.reference, expected, scale))
    for index in range(3):
        spoiled = [tensor.clone() for tensor in expected.reference]
        spoiled[index][-1] = 7
        assert not accepts(scale, deviation(spoiled, expected, scale))


def test_the_bound_follows_an_inaccurate_reference() -> None:
    torch.manual_seed(3)
    truth = torch.randn(SHAPE, dtype=torch.float64)
    exact = scale_of(expected_of(truth), [None], "fp32")
    rough = scale_of(expected_of(truth, truth.bfloat16()), [None], "fp32")
    assert exact.bound == 5e-5
    assert exact.tile_bound == 8 * 5e-5
    assert rough.bound == pytest.approx(4 * rough.reference_error)
    assert rough.tile_bound == pytest.approx(8 * max(rough.bound, rough.reference_worst_tile))


# ---- the worst tile -------------------------------------------------------------------------------------------------


def test_a_missing_tile_shows_in_the_worst_tile_and_not_in_the_error() -> None:
    torch.manual_seed(5)
    truth = torch.randn(2048, 2048, dtype=torch.float64)
    expected = expected_of(truth, truth.half())
    scale = scale_of(expected, [None], "fp16")
    honest = deviation([truth.half()], expected, scale)
    assert accepts(scale, honest)
    assert 0.5 * scale.reference_error < honest.worst_tile < 2 * scale.reference_error
    output = truth.half()
    output[-32:, -32:] = 0
    spoiled = deviation([output], expected, scale)
    assert spoiled.error < CAPS["fp16"] == scale.bound
    # 32 of a run's 256 elements are gone, and the run is measured against itself and the whole: sqrt(32 / 512).
    assert spoiled.worst_tile == pytest.approx(0.25, rel=0.3)
    assert not accepts(scale, spoiled)


def test_a_run_of_zeros_is_not_compared_with_its_own_noise() -> None:
    torch.manual_seed(6)
    truth = torch.randn(64, RUN, dtype=torch.float64)
    truth[5] = 0
    output = truth.float()
    output[5] = 1e-6
    assert deviation_of(output, truth).worst_tile == pytest.approx(1e-6, rel=0.1)


def test_a_last_run_may_be_short() -> None:
    torch.manual_seed(7)
    truth = torch.randn(3 * RUN + 10, dtype=torch.float64)
    output = truth.float()
    output[-10:] = 0
    expected = truth[-10:].norm() / (truth[-10:].square().sum() + RUN * truth.square().mean()).sqrt()
    assert deviation_of(output, truth, 0.0).worst_tile == pytest.approx(float(expected), rel=1e-6)


def test_chunks_are_joined_in_order() -> None:
    """More elements than are compared at a time, with an error in one known run."""
    torch.manual_seed(8)
    truth = torch.randn(200_000, dtype=torch.float64)
    truth[70_144 : 70_144 + RUN] *= 100
    output = truth.clone()
    output[70_144 : 70_144 + RUN] *= 1.01
    run = truth[70_144 : 70_144 + RUN]
    found = deviation_of(output, truth, 0.0)
    assert found.error == pytest.approx(0.01 * float(run.norm() / truth.norm()))
    whole = RUN * truth.square().mean()
    assert found.worst_tile == pytest.approx(0.01 * float(run.norm() / (run.square().sum() + whole).sqrt()))


def test_nan_and_infinity_are_never_accepted() -> None:
    truth = draws()[0]
    scale = replace(scale_of(expected_of(truth), [None], "fp32"), bound=math.inf, tile_bound=math.inf)
    assert accepts(scale, Deviation(error=1.0, worst_tile=1.0))
    assert not accepts(scale, Deviation(error=math.inf, worst_tile=math.inf))
    assert not accepts(scale, Deviation(error=math.nan, worst_tile=0.0))


# ---- classes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "name"), [(torch.float64, "fp64"), (torch.float32, "fp32"), (torch.bfloat16, "half")]
)
def test_the_rounding_of_each_precision_has_its_class(dtype: torch.dtype, name: str) -> None:
    torch.manual_seed(2)
    truth = torch.randn(SHAPE, dtype=torch.float64)
    assert classify(error_of(truth.to(dtype), truth), None) == name


def test_tiny_numbers_separate_fp16_from_tf32() -> None:
    torch.manual_seed(2)
    truth = torch.randn(SHAPE, dtype=torch.float64)
    tiny = truth * 2.0**-16
    tf32 = (truth.float().view(torch.int32) + 0x1000).bitwise_and(~0x1FFF).view(torch.float32)
    nominal = {"half": error_of(truth.half(), truth), "tf32": error_of(tf32, truth)}
    diminished = {"half": error_of(tiny.half(), tiny), "tf32": error_of(tf32 * 2.0**-16, tiny)}
    for name in nominal:
        assert 1e-4 < nominal[name] < 5e-4
        assert classify(nominal[name], diminished[name]) == name
        assert classify(nominal[name], None) == "tf32"
        assert classify(nominal[name], None, "fp16") == "half"


def test_a_wrong_result_has_no_precision() -> None:
    for error in (1.0, math.inf, math.nan):
        assert classify(error, None) is None
        assert classify(error, 1e-7) is None
    assert classify(3e-4, math.nan) == "half"


def test_inputs_whose_signal_is_lost_in_rounding_are_unusable() -> None:
    assert is_usable(1e-6, 2e-7, "fp32")
    assert not is_usable(2e-5, 2e-7, "fp32")
    assert not is_usable(math.nan, 2e-7, "fp32")
    # A coarse reference is as coarse on every distribution; past the cap it is unusable.
    assert is_usable(6e-4, 5e-4, "tf32")
    # cuBLAS itself is beyond the cap on 4096 uniform numbers: no worse elsewhere, it can be judged there as well.
    assert is_usable(7.6e-5, 7.5e-5, "fp32")
    assert not is_usable(6e-3, 2.5e-3, "tf32")


def test_allclose_is_kernelbenchs() -> None:
    truth = torch.ones(SHAPE, dtype=torch.float64)
    expected = expected_of(truth)
    assert allclose([torch.full(SHAPE, 1.0001)], expected, "fp32")
    assert not allclose([torch.full(SHAPE, 1.0003)], expected, "fp32")
    assert allclose([torch.full(SHAPE, 1.015)], expected, "fp16")
    assert not allclose([torch.full(SHAPE, math.nan)], expected, "fp16")


def test_with_nan_among_the_inputs_only_what_depends_on_it_must_be_finite() -> None:
    truth = draws()[0]
    reference = truth.float()
    independent = torch.ones_like(reference, dtype=torch.bool)
    independent[3] = False
    truth[3, :10] = math.nan
    expected = ExpectedOutput(
        truth=[truth], reference=[reference], finite=[False], independent=[independent], by_rows=False
    )
    scale = scale_of(expected, [None], "fp32")
    assert accepts(scale, deviation([reference], expected, scale))

    def accepted(row: int, columns: slice, value: float) -> bool:
        output = reference.clone()
        output[row, columns] = value
        return accepts(scale, deviation([output], expected, scale))

    assert accepted(3, slice(0, 10), 5.0), "the truth is NaN there"
    assert accepted(7, slice(0, 3), math.nan), "a few elements beside it"
    assert not accepted(3, slice(20, 21), math.nan), "the truth is finite although an input is NaN"
    assert not accepted(7, slice(0, 3), 100.0)
    spread = reference.clone()
    spread[10:30] = math.nan
    assert not accepts(scale, deviation([spread], expected, scale))


@pytest.mark.parametrize(("size", "accepted"), [(1e-38, True), (1e-30, False)])
def test_a_row_of_subnormal_numbers_may_be_flushed_to_zero(size: float, accepted: bool) -> None:
    truth = torch.rand(SHAPE, dtype=torch.float64)
    truth[7] *= size
    output = truth.float()
    output[7] = 0
    expected = expected_of(truth)
    scale = scale_of(expected, [None], "fp32")
    assert accepts(scale, deviation([output], expected, scale)) is accepted


def test_booleans_are_close_where_they_are_equal() -> None:
    truth = torch.tensor([True, False])
    assert allclose([truth.clone()], expected_of(truth, truth), "fp32")
    assert not allclose([~truth], expected_of(truth, truth), "fp32")
