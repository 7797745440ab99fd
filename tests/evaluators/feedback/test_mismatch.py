"""Mistakes and inaccuracies get different words, and the words have the right numbers."""

import math
import re
from collections.abc import Callable

import pytest
import torch

from kbevolve.evaluators.correctness.inputs import (
    EXTRA_KINDS,
    KINDS,
    Only,
    alone,
    describe_kind,
    nominal,
    shuffled,
    signed,
)
from kbevolve.evaluators.correctness.truth import ExpectedOutput, accepts, deviation, scale_of
from kbevolve.evaluators.feedback import mismatch
from kbevolve.evaluators.feedback.message import INACCURATE, MESSAGE_LENGTH, MESSAGE_LINES
from kbevolve.evaluators.feedback.mismatch import Mismatch
from tests.hacks.outcomes import SECRETS

torch.manual_seed(0)
RIGHT = torch.randn(96, 96, dtype=torch.float64)
ROWS, COLUMNS, DEPTH = 128, 512, 1024
LEFT, OTHER = torch.randn(ROWS, DEPTH), torch.randn(DEPTH, COLUMNS)
PRODUCT = LEFT.double() @ OTHER.double()
KIND = "inputs as get_inputs() draws them"

Spoil = Callable[[torch.Tensor], torch.Tensor]


def mismatch_of(output: torch.Tensor, right: torch.Tensor = RIGHT, precision: str = "fp32") -> Mismatch:
    expected = ExpectedOutput(truth=[right], reference=[right.float()], finite=[bool(right.isfinite().all())])
    scale = scale_of(expected, [None], precision)
    seen = deviation([output], expected, scale)
    assert not accepts(scale, seen)
    return Mismatch([output], [right], seen, scale)


def describe(output: torch.Tensor, right: torch.Tensor = RIGHT, precision: str = "fp32") -> str:
    text = mismatch_of(output, right, precision).text(KIND, {})
    assert len(text) <= MESSAGE_LENGTH
    assert text.count("\n") < MESSAGE_LINES
    return text


def with_zeros(rows: slice, columns: slice) -> Spoil:
    def spoil(right: torch.Tensor) -> torch.Tensor:
        right[rows, columns] = 0
        return right

    return spoil


@pytest.mark.parametrize(
    ("spoil", "pattern"),
    [
        (torch.zeros_like, "all zeros"),
        (lambda right: torch.full_like(right, math.nan), "all NaN"),
        (lambda right: torch.ones_like(right), "the same value everywhere"),
        (lambda right: 2 * right, "2 times the right value everywhere"),
        (lambda right: right + 3, "off by 3 everywhere"),
        (lambda right: right.T, "transposed"),
        (with_zeros(slice(None), slice(64, None)), "they are 0; only index 64 and above of 96 along axis 1"),
        (with_zeros(slice(17, 18), slice(None)), "along axis 0 only index 17."),
        (with_zeros(slice(10, 20), slice(None)), "along axis 0 only index 10 to 19."),
        (with_zeros(slice(None), slice(5, None, 8)), "along axis 1 only index 5 modulo 8."),
        (with_zeros(slice(32, 64), slice(0, 32)), "in 1 of 9 tiles of 32 x 32, which are wrong as a whole"),
    ],
)
def test_simple_patterns_are_named(spoil: Spoil, pattern: str) -> None:
    text = describe(spoil(RIGHT.clone()).float())
    assert text.startswith("wrong values on inputs as get_inputs() draws them: ")
    assert pattern in text


def test_values_where_the_truth_is_zero_are_named() -> None:
    assert "they should be 0" in describe(RIGHT.float(), RIGHT.relu())


def test_examples_name_index_got_and_want() -> None:
    output = RIGHT.float().clone()
    output[3, 5] = 1000
    text = describe(output)
    assert text.endswith(f"\nFirst: [3, 5] got 1000 want {RIGHT[3, 5].item():.6g}")


def raced(seed: int) -> torch.Tensor:
    """Of 3 % of the elements in columns 9 to 15 modulo 128, 4 of 1024 products are missing."""
    generator = torch.Generator().manual_seed(seed)
    output, places = PRODUCT.float(), torch.arange(COLUMNS) % 128
    hit = (torch.rand(ROWS, COLUMNS, generator=generator) < 0.03) & (places >= 9) & (places < 16)
    return torch.where(hit, output - LEFT[:, :4] @ OTHER[:4], output)


def test_a_race_in_some_columns_is_located_and_recognised() -> None:
    found = mismatch_of(raced(1), PRODUCT)
    text = found.text(KIND, {})
    assert "along axis 1 only index 9 to 15 modulo 128." in text
    share = re.search(r"as if ([\d.]+) % of the terms", text)
    assert share is not None
    assert float(share[1]) == pytest.approx(100 * 4 / DEPTH, rel=0.5)
    assert "made other elements wrong (" in found.beside([raced(2)], [PRODUCT])
    assert "a race" in found.beside([raced(2)], [PRODUCT])


def test_a_second_run_tells_races_from_wrong_indices() -> None:
    found = mismatch_of(raced(1), PRODUCT)
    assert "the same elements wrong by the same values: an index" in found.beside([raced(1)], [PRODUCT])
    assert "was right: a race" in found.beside([PRODUCT.float()], [PRODUCT])
    others = torch.where(raced(1).double() - PRODUCT > 0.1, 7e3, raced(1))
    assert "by other values: memory that is read before it is written" in found.beside([others], [PRODUCT])


def test_a_race_in_most_elements_is_told_from_rounding() -> None:
    noise = 1e-3 * PRODUCT.std() * torch.randn(2, *PRODUCT.shape)
    first, second = (PRODUCT + one for one in noise)
    found = mismatch_of(first.float(), PRODUCT)
    assert found.inaccurate
    assert "differs from the first by 1.4 times the error: a race?" in found.beside([second.float()], [PRODUCT])
    assert found.beside([first.float()], [PRODUCT]) == ""


def test_coarse_rounding_of_every_other_column_is_located(monkeypatch: pytest.MonkeyPatch) -> None:
    output = PRODUCT.float()
    output[:, 1::8] += 3e-4 * torch.randn(ROWS, COLUMNS // 8) * PRODUCT.std()
    output += 2e-5 * torch.randn(ROWS, COLUMNS) * PRODUCT.std()
    assert "The largest errors are along axis 1 only index 1 modulo 8." in describe(output.float(), PRODUCT)
    output[100:, 1::8] += 3e-4 * torch.randn(ROWS - 100, COLUMNS // 8) * PRODUCT.std()
    monkeypatch.setitem(mismatch._EXAMINED, "cpu", 50 * COLUMNS)
    assert "a last tile" not in describe(output.float(), PRODUCT)


def test_the_first_run_is_remembered_although_the_second_overwrites_it() -> None:
    output = RIGHT.clone()  # fp64 needs no conversion, and so might not be copied
    output[3] = 5
    found = mismatch_of(output)
    output.copy_(RIGHT)
    assert "was right" in found.beside([output], [RIGHT])


def test_a_tail_of_a_sum_that_is_left_out_is_sized() -> None:
    text = describe(LEFT[:, :-16] @ OTHER[:-16], PRODUCT)
    share = re.search(r"as if ([\d.]+) % of the terms of their sums were missing", text)
    assert share is not None
    assert float(share[1]) == pytest.approx(100 * 16 / DEPTH, rel=0.2)


def truncated(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """A product whose sums are rounded toward zero every 16 steps, as in the accumulators of tensor cores."""
    total = torch.zeros(left.shape[0], right.shape[1])
    for step in range(0, left.shape[1], 16):
        exact = total.double() + left[:, step : step + 16].double() @ right[step : step + 16].double()
        near = exact.float()
        total = torch.where(near.double().abs() > exact.abs(), near.nextafter(torch.zeros(())), near)
    return total


def test_truncated_sums_are_a_bias() -> None:
    left, right = torch.rand(64, 2048), torch.rand(2048, 64)
    exact = left.double() @ right.double()
    text = describe(truncated(left, right), exact)
    assert text.startswith(INACCURATE)
    assert "limit 5e-05 (the reference: " in text
    assert "Mostly a bias toward zero: truncation" in text
    assert "without it the output would be accepted" in text
    assert "100 % of the outputs that differ are too small" in text
    c = re.search(r"got = \(1 - ([\d.e-]+)\) want explains (\d+) %", text)
    assert c is not None
    ratios = 1 - truncated(left, right).double() / exact
    assert float(c[1]) == pytest.approx(float(ratios.mean()), rel=0.02)
    assert int(c[2]) > 95
    assert "Relative to the values themselves it is " in text


def test_a_split_without_its_low_parts_is_scatter_of_a_known_size() -> None:
    text = describe(LEFT.half().float() @ OTHER.half().float(), PRODUCT)
    assert text.startswith(INACCURATE)
    assert "Mostly scatter, of the size that TF32 or fp16 operands without their low parts" in text
    assert "got = (1" not in text
    text = describe(LEFT.bfloat16().float() @ OTHER.bfloat16().float(), PRODUCT)
    assert "of the size that bf16 operands leave" in text
    assert re.search(r"too few bits, or 0\.000\d+ % of the terms of each sum are missing", text)
    assert "low parts" not in describe(LEFT.bfloat16().float() @ OTHER.bfloat16().float(), PRODUCT, "tf32")


def test_differences_by_rounding_show_all_digits() -> None:
    output = LEFT.half().float() @ OTHER.half().float()
    text = describe(output, PRODUCT)
    row, column, got, want = re.findall(r"\[(\d+), (\d+)\] got (\S+) want (\S+?),", text)[0]
    place = int(row), int(column)
    assert (float(got), float(want)) == pytest.approx((output[place].item(), PRODUCT[place].item()), rel=1e-8)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_small_wrong_region_is_not_called_rounding(precision: str) -> None:
    output = RIGHT.float() if precision == "fp32" else RIGHT.half().float()
    output[-4:, -4:] = 0
    text = describe(output, RIGHT, precision)
    assert text.startswith("wrong values on ")
    share = re.search(r"\n([\d.]+) % of the elements are wrong: they are 0", text)
    assert share is not None
    assert float(share[1]) == pytest.approx(100 * 16 / 96**2, rel=0.1)  # some are so small that 0 is near


def test_rounding_of_rows_and_columns_of_many_sizes_is_not_called_a_mistake() -> None:
    generator = torch.Generator().manual_seed(0)
    left, right = (signed(each, generator) for each in (LEFT, OTHER))  # type: ignore[operator]
    text = describe(left.half().float() @ right.half().float(), left.double() @ right.double())
    assert text.startswith(INACCURATE)


def test_rounding_of_exponentials_is_not_called_a_mistake() -> None:
    logits = 30 * torch.randn(64, 1024)
    text = describe(torch.softmax(logits.half().float(), -1), torch.softmax(logits.double(), -1))
    assert text.startswith(INACCURATE)


def test_rounding_behind_a_relu_is_not_called_a_mistake() -> None:
    text = describe((LEFT.half().float() @ OTHER.half().float() - 60).relu(), (PRODUCT - 60).relu())
    assert text.startswith(INACCURATE)


def test_the_limit_that_was_exceeded_is_the_one_that_is_named() -> None:
    right = 1 + torch.randn(1024, 256, dtype=torch.float64)
    output = right.float()
    output[7] += 1e-3
    assert "against fp64 in the worst 256 consecutive elements, limit 0.0004" in describe(output, right)
    right[7] *= 1e-4
    narrow, output = right[:, :64].contiguous(), right[:, :64].float()
    output[7] = 0
    text = describe(output, narrow)
    assert "the error of one row is 3.33 times what is accepted in it: 30 % of the row" in text
    assert "along axis 0 only index 7." in text


@pytest.mark.parametrize("row", [3, 50, 95])
def test_the_worst_rows_of_a_large_tensor_are_examined(row: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(mismatch._EXAMINED, "cpu", 10 * 96)
    output = RIGHT.float()
    output[row, 7] = math.nan
    assert f"First: [{row}, 7] got nan want" in describe(output)


def test_a_last_tile_of_a_large_tensor_has_its_own_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(mismatch._EXAMINED, "cpu", 10 * 96)
    output = RIGHT.float()
    output[93:] = 100
    assert "only index 93 and above of 96 along axis 0" in describe(output)
    output = RIGHT.float()
    output[15:20] = 100
    assert "last tile" not in describe(output)


def test_one_of_several_outputs_and_changed_state_are_named() -> None:
    names = ("output 0", "norm.running_mean after the call")
    expected = ExpectedOutput(truth=[RIGHT, RIGHT], reference=[RIGHT.float()] * 2, finite=[True, True])
    scale, outputs = scale_of(expected, [None, None], "fp32"), [RIGHT.float().double(), RIGHT.float() + 1]
    found = Mismatch(outputs, expected.truth, deviation(outputs, expected, scale), scale, names=names)
    assert "wrong values on X, norm.running_mean after the call: " in found.text("X", {})
    found = Mismatch(outputs, expected.truth, deviation(outputs, expected, scale), scale)
    assert "wrong values on X, output 1: " in found.text("X", {})
    outputs = [RIGHT, RIGHT + 1]
    found = Mismatch(outputs, expected.truth, deviation(outputs, expected, scale), scale)
    assert "wrong values on X, output 1 (1 of 2 are right): " in found.text("X", {})


@pytest.mark.parametrize(
    ("output", "right"),
    [
        (torch.tensor(3.0), torch.tensor(1.0, dtype=torch.float64)),
        (torch.tensor([1, 2, 4]), torch.tensor([1, 2, 3])),
        (torch.tensor([True, True]), torch.tensor([True, False])),
        (torch.zeros(4, 4, dtype=torch.complex64), torch.full((4, 4), 1 + 2j, dtype=torch.complex128)),
        (torch.zeros(2, 3, 4, 64), torch.ones(2, 3, 4, 64, dtype=torch.float64)),
        (torch.full((300,), math.inf), torch.randn(300, dtype=torch.float64)),
        (torch.randn(300), torch.full((300,), -math.inf, dtype=torch.float64)),
    ],
)
def test_every_shape_and_dtype_has_a_description(output: torch.Tensor, right: torch.Tensor) -> None:
    expected = ExpectedOutput(truth=[right], reference=[right], finite=[bool(right.isfinite().all())])
    scale = scale_of(expected, [None], "fp32")
    found = Mismatch([output], [right], deviation([output], expected, scale), scale)
    assert found.text("X", {}).startswith("wrong values on X: ")
    assert "the same values" in found.beside([output], [right])


def test_too_many_nan_beside_special_inputs_are_named() -> None:
    right = RIGHT.clone()
    right[0] = math.nan
    output = right.float()
    output[1:5] = math.nan  # these rows do not depend on what makes the first NaN
    independent = torch.ones(96, 96, dtype=torch.bool)
    expected = ExpectedOutput(truth=[right], reference=[right.float()], finite=[False], independent=[independent])
    scale = scale_of(expected, [None], "fp32")
    seen = deviation([output], expected, scale)
    found = Mismatch(expected.comparable([output]), [right], seen, scale)
    assert found.text("X", {}).splitlines()[1] == (
        "more than 1 % of the elements that depend on no NaN and no infinity among the inputs are NaN."
    )


def test_kinds_that_were_accepted_are_named_with_their_errors() -> None:
    found = mismatch_of(torch.zeros_like(RIGHT))
    assert "\nAccepted before, with these errors: easy ones (1.2e-07).\n" in found.text(
        "hard ones", {"easy ones": 1.23e-7}
    )


def test_every_kind_of_inputs_has_words_and_none_names_the_judges_means() -> None:
    kinds = [nominal, alone, shuffled, *(one for kind in (*KINDS, *EXTRA_KINDS) for one in kind)]
    words = [describe_kind(kind) for kind in kinds]
    assert len(set(words)) == len(kinds)
    assert not [one for one in words if SECRETS.search(one)]
    assert describe_kind(Only(alone, 1)).endswith(" (input 1 only)")
    assert describe_kind(nominal, [torch.rand(3), torch.arange(3)]).endswith(", none negative")
    assert describe_kind(nominal, [torch.randn(100)]) == KIND
