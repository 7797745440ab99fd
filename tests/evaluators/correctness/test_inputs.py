import pytest
import torch

from kbevolve.evaluators.correctness.inputs import (
    EXTRA_KINDS,
    KINDS,
    Only,
    Transform,
    alone,
    diminished,
    enlarged,
    heterogeneous,
    integers,
    larger_integers,
    mixed_rows,
    nominal,
    outlying,
    plan_transforms,
    scaled_4x,
    scaled_16th,
    scaled_128x,
    scaled_512th,
    shrunk,
    shuffled,
    signed,
    special,
    transformed,
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


@pytest.mark.parametrize("transform", [special, outlying, alone])
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_changes_a_few_elements_keeps_zeros_and_symmetry(transform: Transform, dtype: torch.dtype) -> None:
    lower = numbers(64, 64).tril().to(dtype)
    for seed in range(20):
        assert torch.equal(transform(lower, seeded(seed))[lower == 0], lower[lower == 0])
        symmetric = transform(lower + lower.mT, seeded(seed))
        assert torch.equal(symmetric.nan_to_num(), symmetric.mT.nan_to_num())


def test_special_numbers_of_every_kind_are_in_few_rows() -> None:
    before = numbers(64, 48)
    after = special(before, seeded())
    assert after.isnan().any()
    assert after.isinf().any()
    assert float(after[after.isfinite()].abs().max()) == 2.0**40
    assert torch.equal(after[4:], before[4:])
    assert outlying(before, seeded()).isfinite().all()
    assert special(before.half(), seeded()).nan_to_num(0, 0, 0).abs().max() == torch.finfo(torch.float16).max
    integers_stay = torch.arange(40)
    assert special(integers_stay, seeded()) is integers_stay


def test_a_nan_shares_neither_row_nor_column_with_an_infinity() -> None:
    before = numbers(80, 100)
    for seed in range(200):
        after = special(before, seeded(seed))
        (row, column), *others = after.isnan().nonzero().tolist()
        assert not others
        assert not after[row].isinf().any()
        assert not after[:, column].isinf().any()
        assert int(after.isinf().sum()) == 2
    assert int(special(numbers(4, 400), seeded()).isinf().sum()) == 2, "fewer rows than numbers"


@pytest.mark.parametrize("transform", [special, outlying])
def test_one_of_several_inputs_has_the_largest_outliers(transform: Transform) -> None:
    before = [numbers(64, 48), torch.arange(40), numbers(32, 32)]
    largest = set()
    for seed in range(20):
        after = transformed(transform, before, seeded(seed))
        assert after[1] is before[1]
        sizes = [float(after[index][after[index].isfinite()].abs().max()) for index in (0, 2)]
        assert sorted(sizes) == [2.0**20, 2.0**40]
        assert after[0].isnan().any() == after[2].isnan().any() == (transform is special)
        largest.add(sizes.index(2.0**40))
    assert largest == {0, 1}


@pytest.mark.parametrize("shape", [(50,), (40, 30), (1, 6, 7), (3, 4, 8, 8)])
def test_one_row_and_a_few_elements_change_alone(shape: tuple[int, ...]) -> None:
    before = numbers(*shape)
    changed = alone(before, seeded()) != before
    axis = next(axis for axis, size in enumerate(shape) if size > 1)
    rows = changed.transpose(0, axis).flatten(1) if len(shape) > 1 else changed.view(-1, 1)
    counts = rows.sum(1)
    assert 0 < int(counts.max()) <= rows.shape[1]
    assert int(counts.sum() - counts.max()) <= 4
    order = torch.arange(20).view(10, 2)
    assert sorted(alone(order, seeded()).flatten().tolist()) == list(range(20))


def test_integers_are_enlarged_and_flipped_within_their_range() -> None:
    after = integers(torch.arange(1, 100), seeded())
    assert set((after.abs() // torch.arange(1, 100)).tolist()) == {1000}
    assert int(after.min()) < 0 < int(after.max())
    small = integers(torch.arange(1, 100, dtype=torch.int8), seeded())
    assert torch.equal(small.abs(), torch.arange(1, 100, dtype=torch.int8))
    flags = torch.tensor([True, False])
    assert integers(flags, seeded()) is flags
    positive = larger_integers(torch.arange(1, 100), seeded())
    assert torch.equal(positive, 1000 * torch.arange(1, 100))


def test_what_never_changes_is_shuffled_or_gets_other_elements() -> None:
    assert sorted(shuffled(torch.arange(50), seeded()).tolist()) == list(range(50))
    mask = torch.full((8, 8), -torch.inf).triu(1)
    assert not torch.equal(shuffled(mask, seeded()), mask)
    assert set(shuffled(torch.ones(64, dtype=torch.bool), seeded()).tolist()) == {True, False}
    assert set(shuffled(torch.ones(64, dtype=torch.int32), seeded()).tolist()) == {0, 1}
    assert set(shuffled(torch.zeros(64, dtype=torch.int64), seeded()).tolist()) == {0, 1}
    lengths = shuffled(torch.full((999,), 7), seeded())
    assert set(lengths.tolist()) == set(range(1, 8))
    assert set(shuffled(torch.full((99,), -2), seeded()).tolist()) == {-2, -1}
    assert shuffled(torch.zeros(99), seeded()).unique().numel() > 90
    assert bool((shuffled(torch.full((99,), 2.0), seeded()) > 0).all())
    assert float(shuffled(torch.tensor(2.0), seeded())) != 2.0


def test_a_transform_of_one_input_leaves_the_others() -> None:
    one, other = numbers(16, 8), numbers(16, 8)
    found = transformed(Only(signed, 1), [one, other], seeded())
    assert found[0] is one
    assert not torch.equal(found[1], other)
    assert EXTRA_KINDS[0][0] is special
