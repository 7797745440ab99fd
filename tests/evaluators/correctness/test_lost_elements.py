"""Small elements beside large ones count by their number; what rounding or a flush to zero explains does not."""

import pytest
import torch

from kbevolve.evaluators.correctness.lost_elements import describe, is_lossy, lost_share, places_in, sample


def share_of(output: torch.Tensor, truth: torch.Tensor, reference: torch.Tensor | None = None) -> float:
    reference = truth if reference is None else reference
    shape = torch.view_as_real(truth).shape if truth.is_complex() else truth.shape
    places = places_in([shape], device=torch.device("cpu"), seed=1)
    return lost_share(*(sample([tensor], places) for tensor in (output, truth, reference)))


def test_small_columns_that_are_lost_are_seen() -> None:
    truth = torch.randn(200, 100, dtype=torch.float64)
    truth[:, ::4] *= 1e-6
    output = truth.float()
    assert share_of(output, truth) == 0
    output[:, ::4] = 0
    assert share_of(output, truth) == pytest.approx(0.25, abs=0.05)
    assert is_lossy(share_of(output, truth))
    assert "25 %" in describe(0.25)


def test_what_rounding_explains_is_not_lost() -> None:
    truth = 1e-17 * torch.randn(200, 100, dtype=torch.float64)  # a mean that is zero
    reference, output = (1e-8 * torch.randn(200, 100) for _ in range(2))
    assert not is_lossy(share_of(output, truth, reference))
    products = torch.randn(200, 100, dtype=torch.float64)
    assert not is_lossy(share_of(products + 0.02 * torch.randn(200, 100), products, products.bfloat16()))


@pytest.mark.parametrize("value", [0.0, 1e-40, -1e-38, float("inf"), float("nan")])
def test_zeros_subnormal_numbers_and_what_is_not_finite_do_not_count(value: float) -> None:
    assert share_of(torch.zeros(64), torch.full((64,), value, dtype=torch.float64)) == 0


def test_complex_numbers_integers_and_short_tensors() -> None:
    truth = torch.randn(40, 40, dtype=torch.complex128)
    assert share_of(truth.to(torch.complex64), truth) == 0
    assert share_of(torch.zeros_like(truth), truth) == 1
    assert share_of(torch.zeros(64, dtype=torch.int64), torch.ones(64, dtype=torch.int64)) == 0
    assert share_of(torch.zeros(15), torch.ones(15, dtype=torch.float64)) == 0
    assert share_of(torch.zeros(0, 8), torch.zeros(0, 8, dtype=torch.float64)) == 0
