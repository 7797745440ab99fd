import math
import statistics

import pytest
import torch

import kbevolve.evaluators.correctness.sketch as sketches
from kbevolve.evaluators.correctness.sketch import BUCKETS, Sketch

LARGE = (1200, 500)  # some 32 times the number of buckets


def sketch(shape: tuple[int, ...] = LARGE, seed: int = 1, buckets: int = BUCKETS) -> Sketch:
    return Sketch(shape, device="cpu", seed=seed, buckets=buckets)


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def estimate(made: Sketch, one: torch.Tensor, other: torch.Tensor) -> float:
    return made.distance(made.of(one), made.of(other))


def test_equal_tensors_are_at_distance_zero() -> None:
    made = sketch()
    assert estimate(made, randn(*LARGE), randn(*LARGE).clone()) == 0.0


def test_a_sketch_is_short() -> None:
    made = sketch()
    vector = made.of(randn(*LARGE))
    assert vector.shape == (made.buckets,)
    assert vector.dtype == torch.float64
    assert BUCKETS <= made.buckets <= 1.25 * BUCKETS + 1
    assert made.buckets % 2 == 1


def test_the_number_of_buckets_is_drawn() -> None:
    assert len({sketch((5,), seed=seed).buckets for seed in range(10)}) > 5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_the_distance_is_estimated_to_a_few_percent(dtype: torch.dtype) -> None:
    truth = randn(*LARGE).double()
    output = (truth + 1e-3 * randn(*LARGE, seed=1)).to(dtype)
    exact = float((output.double() - truth).norm())
    assert estimate(sketch(), output, truth) == pytest.approx(exact, rel=0.03)


def test_the_estimates_spread_as_much_as_theory_says() -> None:
    """Relative standard deviation sqrt(1 / (2 P)), for an error that has the same sign everywhere."""
    shape = (80, 300)
    error = torch.full(shape, 1e-3)
    zeros = torch.zeros(shape)
    ratios = []
    for seed in range(50):
        made = sketch(shape, seed=seed, buckets=512)
        ratios.append(estimate(made, error, zeros) / float(error.norm()))
    expected = math.sqrt(1 / (2 * 512))
    assert 0.6 * expected < statistics.stdev(ratios) < 1.4 * expected
    assert statistics.mean(ratios) == pytest.approx(1.0, abs=expected)


@pytest.mark.parametrize("columns", [slice(7, 8), slice(64, 128)])
def test_a_wrong_column_cannot_hide_in_one_bucket(columns: slice) -> None:
    shape = (512, 4096)
    output = torch.zeros(shape)
    output[:, columns] = 1
    exact = float(output.norm())
    for seed in range(8):
        assert estimate(sketch(shape, seed=seed), output, torch.zeros(shape)) == pytest.approx(exact, rel=0.15)


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_any_number_of_elements_has_a_sketch(rows: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stretch has one row on the CPU and many on CUDA; the last may end anywhere, also in its second row."""
    monkeypatch.setitem(sketches._ROWS, "cpu", rows)
    width = sketch((1000,), buckets=64).buckets
    for elements in range(65, 6 * width):
        made, output = sketch((elements,), buckets=64), torch.ones(elements, dtype=dtype)
        spoiled = output.clone()
        spoiled[-1] += 1
        assert estimate(made, spoiled, output) > 0
        assert estimate(made, output, output.clone()) == 0


def test_one_wrong_element_is_seen_exactly() -> None:
    made, output = sketch(), randn(*LARGE).double()
    spoiled = output.clone()
    spoiled[-1, -1] += 0.5
    assert estimate(made, spoiled, output) == pytest.approx(0.5)


def test_other_seeds_have_other_signs() -> None:
    tensor = randn(*LARGE)
    one, other = sketch(seed=1), sketch(seed=2)
    assert one.buckets != other.buckets or not torch.equal(one.of(tensor), other.of(tensor))
    assert torch.equal(sketch(seed=1).of(tensor), one.of(tensor))


def test_a_tensor_with_more_elements_than_signs_is_estimated_as_well() -> None:
    """128 buckets make so many stretches that signs repeat."""
    shape = (1 << 17,)
    output = randn(*shape)
    made = [sketch(shape, seed=seed, buckets=128) for seed in range(10)]
    ratios = [estimate(each, output, torch.zeros(shape)) / float(output.norm()) for each in made]
    assert statistics.mean(ratios) == pytest.approx(1.0, abs=0.06)


# ---- not finite -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [LARGE, (10, 10)])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_one_element_that_is_not_finite_gives_an_infinite_distance(shape: tuple[int, ...], value: float) -> None:
    made, truth = sketch(shape), randn(*shape)
    spoiled = truth.clone()
    spoiled[3, 4] = value
    assert estimate(made, spoiled, truth) == math.inf
    assert estimate(made, truth, spoiled) == math.inf
    assert estimate(made, torch.full(shape, value), truth) == math.inf


@pytest.mark.parametrize("shape", [LARGE, (10, 10)])
def test_where_the_truth_is_not_finite_the_output_must_be_equal(shape: tuple[int, ...]) -> None:
    made, truth = sketch(shape), randn(*shape).double()
    truth[0, :4] = torch.tensor([math.nan, math.inf, -math.inf, math.inf])
    output = truth.float()
    assert estimate(made, output, truth) < 1e-4
    for index, value in ((0, math.inf), (1, -math.inf), (2, 1.0), (3, math.nan)):
        spoiled = output.clone()
        spoiled[0, index] = value
        assert estimate(made, spoiled, truth) == math.inf
    moved = output.clone()
    moved[0, 0], moved[0, 9] = 0.0, math.nan
    assert estimate(made, moved, truth) == math.inf
    far = output.clone()
    far[5, 5] += 2
    assert estimate(made, far, truth) == pytest.approx(2.0, rel=1e-3)


# ---- other dtypes ---------------------------------------------------------------------------------------------------


def test_a_small_tensor_is_kept_whole() -> None:
    made, truth = sketch((40, 40)), randn(40, 40).double()
    output = truth.float() + 1e-4
    assert made.of(output).shape == (1600,)
    assert estimate(made, output, truth) == pytest.approx(float((output - truth).norm()), rel=1e-9)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64, torch.float32])
def test_what_is_kept_is_no_view(dtype: torch.dtype) -> None:
    output = torch.ones(40, 40, dtype=dtype)
    kept = sketch((40, 40)).of(output)
    output.zero_()
    assert bool((kept == 1).all())


@pytest.mark.parametrize("shape", [LARGE, (10, 10)])
def test_complex_numbers_count_as_two(shape: tuple[int, ...]) -> None:
    truth = torch.complex(randn(*shape), randn(*shape, seed=1))
    output = truth.clone()
    output[-1] += 1j
    assert estimate(sketch(shape), output, truth) == pytest.approx(math.sqrt(shape[1]), rel=0.1)
    assert estimate(sketch(shape), truth, truth) == 0.0


@pytest.mark.parametrize("shape", [LARGE, (10, 10)])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_integers_are_exact(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    made = sketch(shape)
    truth = torch.randint(0, 100, shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    assert estimate(made, truth.clone(), truth) == 0.0
    for change in (1, 2, 64):
        spoiled = truth.clone()
        spoiled[-1, -1] += change
        assert estimate(made, spoiled, truth) == pytest.approx(1 / truth.numel(), rel=0.01)
    swapped = truth.clone()
    swapped[0, :2] = torch.tensor([3, 4])
    other = swapped.clone()
    other[0, :2] = torch.tensor([4, 3])
    assert estimate(made, swapped, other) == pytest.approx(2 / truth.numel(), rel=0.01)


def test_huge_integers_are_exact() -> None:
    made = sketch()
    truth = torch.full(LARGE, 1 << 62)
    spoiled = truth.clone()
    spoiled[0, 0] += 1
    assert estimate(made, spoiled, truth) > 0
    # Times an even factor this difference would be 0 modulo 2^64.
    truth[0, 0], spoiled[0, 0] = 0, -(1 << 63)
    assert estimate(made, spoiled, truth) > 0


def test_the_share_of_integers_that_differ_is_estimated() -> None:
    made, truth = sketch(), torch.zeros(LARGE, dtype=torch.bool)
    spoiled = truth.clone()
    spoiled[:4] = True
    assert estimate(made, spoiled, truth) == pytest.approx(4 / LARGE[0], rel=0.1)
    assert estimate(made, ~truth, truth) == math.inf


def test_a_tensor_without_elements() -> None:
    made = sketch((0, 5))
    assert estimate(made, torch.zeros(0, 5), torch.zeros(0, 5)) == 0.0
    assert estimate(made, torch.zeros(0, 5, dtype=torch.int32), torch.zeros(0, 5, dtype=torch.int32)) == 0.0
