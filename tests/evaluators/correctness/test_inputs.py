import pytest
import torch

from kbevolve.evaluators.correctness.inputs import (
    KINDS,
    Transform,
    diminished,
    enlarged,
    heterogeneous,
    mixed_rows,
    nominal,
    plan_transforms,
    scaled_4x,
    scaled_16th,
    scaled_128x,
    scaled_512th,
    shrunk,
    signed,
)

ALL = [transform for kind in KINDS for transform in kind]
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def seeded(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def numbers(*shape: int) -> torch.Tensor:
    """In [1/2, 1), so that a quotient shows the factor."""
    return 0.5 + torch.rand(*shape, generator=seeded(0)) / 2


@pytest.mark.parametrize("transform", ALL)
@pytest.mark.parametrize("shape", [(64,), (40, 30), (6, 5, 4), (3, 4, 8, 8), (1, 50)])
def test_factors_are_powers_of_two(transform: Transform, shape: tuple[int, ...]) -> None:
    before = numbers(*shape)
    after = transform(before, seeded())
    assert after.shape == before.shape
    assert after.dtype == before.dtype
    factors = (after / before).abs()
    assert torch.equal(torch.exp2(factors.log2().round()), factors)
    assert not torch.equal(after, before)


@pytest.mark.parametrize("transform", ALL)
@pytest.mark.parametrize("dtype", DTYPES)
def test_dtype_and_zeros_stay(transform: Transform, dtype: torch.dtype) -> None:
    lower = numbers(16, 16).tril().to(dtype)
    after = transform(lower, seeded())
    assert after.dtype == dtype
    assert torch.equal(after == 0, lower == 0)
    diagonal = torch.diag(numbers(16)).to(dtype)
    assert torch.equal(transform(diagonal, seeded()) == 0, diagonal == 0)


@pytest.mark.parametrize("transform", [nominal, *ALL])
@pytest.mark.parametrize(
    "tensor", [torch.arange(12).view(3, 4), torch.tensor([True, False]), torch.tensor(0.5), torch.zeros(0, 4)]
)
def test_integers_and_tensors_without_axes_or_elements_stay(transform: Transform, tensor: torch.Tensor) -> None:
    assert torch.equal(transform(tensor, seeded()), tensor)


@pytest.mark.parametrize("transform", ALL)
@pytest.mark.parametrize("shape", [(12, 12), (5, 12, 12), (2, 3, 12, 12), (1, 12, 12)])
def test_symmetry_stays(transform: Transform, shape: tuple[int, ...]) -> None:
    half = numbers(*shape)
    both = half + half.mT
    after = transform(both, seeded())
    assert torch.equal(after, after.mT)
    assert not torch.equal(after, both)


@pytest.mark.parametrize("transform", ALL)
def test_the_same_seed_gives_the_same_inputs(transform: Transform) -> None:
    before = numbers(20, 20)
    assert torch.equal(transform(before, seeded(3)), transform(before, seeded(3)))


def test_only_some_transforms_change_signs() -> None:
    before = numbers(40, 40)
    for transform in (signed, heterogeneous, enlarged, scaled_4x):
        assert (transform(before, seeded()) < 0).any()
    for transform in (shrunk, mixed_rows, scaled_128x, diminished, scaled_512th, scaled_16th):
        after = transform(before, seeded())
        assert (after > 0).all()
    for transform in (shrunk, mixed_rows, scaled_512th, scaled_16th):
        assert transform(before, seeded()).max() <= 1


def test_factors_are_those_of_the_names() -> None:
    before = numbers(40, 40)
    for transform, factor in (
        (enlarged, 128),
        (scaled_128x, 128),
        (scaled_4x, 4),
        (scaled_512th, 2**-9),
        (scaled_16th, 1 / 16),
    ):
        assert torch.equal(transform(before, seeded()).abs(), before * factor)


@pytest.mark.parametrize("size", [1e-6, 0.3, 1.0, 5.0, 1e4])
def test_diminished_inputs_are_equally_small_however_large_they_were(size: float) -> None:
    after = diminished(size * torch.randn(100, 100, generator=seeded()), seeded())
    assert 0.7 * 2**-16 < float(after.square().mean().sqrt()) < 1.5 * 2**-16
    zeros = torch.zeros(3, 3)
    assert torch.equal(diminished(zeros, seeded()), zeros)
    half = diminished(torch.full((4,), 300.0, dtype=torch.float16), seeded())
    assert (half > 0).all()


def test_softmax_without_its_maximum_overflows_on_enlarged_inputs() -> None:
    x = enlarged(torch.randn(8, 64, generator=seeded()), seeded())
    exponentials = x.exp()
    assert not (exponentials / exponentials.sum(-1, keepdim=True)).isfinite().all()
    assert torch.softmax(x, -1).isfinite().all()


@pytest.mark.parametrize("transform", [heterogeneous, mixed_rows])
@pytest.mark.parametrize("shape", [(40, 30), (1, 40, 30), (40,), (40, 3, 3)])
def test_half_of_the_rows_stay_as_they_were_drawn(transform: Transform, shape: tuple[int, ...]) -> None:
    before = numbers(*shape)
    after = transform(before, seeded())
    rows = (before == after).view(40, -1)
    # A changed row of one element, or of few, may have got the factor 1.
    assert 20 <= int(rows.all(1).sum()) <= 34
    other = (before == transform(before, seeded(2))).view(40, -1).all(1)
    assert not torch.equal(rows.all(1), other)


def test_the_default_trials_cover_every_kind() -> None:
    plan = plan_transforms(7, (signed, heterogeneous, enlarged, diminished))
    assert plan == (nominal, signed, nominal, heterogeneous, nominal, enlarged, diminished)


def test_fewer_trials_are_the_first_ones_and_more_begin_again() -> None:
    usable = (signed, heterogeneous, enlarged, diminished)
    assert plan_transforms(1, usable) == (nominal,)
    assert plan_transforms(4, usable) == plan_transforms(7, usable)[:4]
    assert plan_transforms(9, usable)[7:] == (nominal, signed)


def test_a_kind_without_a_usable_transform_is_left_out() -> None:
    assert plan_transforms(4, ()) == (nominal,) * 4
    assert plan_transforms(4, (shrunk,)) == (nominal, shrunk, nominal, shrunk)
    assert plan_transforms(7, (signed, heterogeneous, diminished))[:5] == (
        nominal,
        signed,
        nominal,
        heterogeneous,
        diminished,
    )
