import math
from collections.abc import Callable

import pytest
import torch

from kbevolve.evaluators.feedback import mismatch
from kbevolve.evaluators.feedback.mismatch import describe_mismatch, describe_shape

torch.manual_seed(0)
RIGHT = torch.randn(96, 96, dtype=torch.float64)


def describe(output: torch.Tensor) -> str:
    return describe_mismatch([output], [RIGHT], 0.5, 1e-7)


def with_tail(output: torch.Tensor) -> torch.Tensor:
    output[:, 64:] = 0
    return output


@pytest.mark.parametrize(
    ("spoil", "pattern"),
    [
        (torch.zeros_like, "all zeros"),
        (lambda right: torch.full_like(right, math.nan), "all NaN"),
        (lambda right: torch.ones_like(right), "the same value everywhere"),
        (lambda right: 2 * right, "2 times the right value everywhere"),
        (lambda right: right + 3, "off by 3 everywhere"),
        (lambda right: right.T, "transposed"),
        (with_tail, "only index 64 and above of 96 along axis 1"),
    ],
)
def test_simple_patterns_are_named(spoil: Callable[[torch.Tensor], torch.Tensor], pattern: str) -> None:
    assert pattern in describe(spoil(RIGHT.clone()).float())


def test_examples_name_index_got_and_want() -> None:
    output = RIGHT.float().clone()
    output[3, 5] = 1000
    text = describe(output)
    assert f"[3, 5] got 1000 want {RIGHT[3, 5].item():.6g}" in text
    assert text.count(" got ") == 1


def test_rounding_and_wrong_values_are_separated() -> None:
    text = describe_mismatch([RIGHT.half().float()], [RIGHT], 3e-4, 1e-7)
    assert text.startswith("not accurate enough")
    assert "largest differences: [" in text


def test_a_small_wrong_region_is_not_called_rounding() -> None:
    output = RIGHT.float()
    output[-4:, -4:] = 0
    text = describe_mismatch([output], [RIGHT], 1.5e-2, 3e-4)
    assert text.startswith("wrong values: 0.174 % of the elements")


@pytest.mark.parametrize("row", [3, 50, 95])
def test_the_worst_rows_of_a_large_tensor_are_examined(row: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mismatch, "_EXAMINED", 10 * 96)
    output = RIGHT.float()
    output[row, 7] = math.nan
    assert f"first: [{row}, 7] got nan want" in describe_mismatch([output], [RIGHT], math.inf, 1e-7)


def test_a_last_tile_of_a_large_tensor_has_its_own_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mismatch, "_EXAMINED", 10 * 96)
    output = RIGHT.float()
    output[93:] = 100
    text = describe_mismatch([output], [RIGHT], 3.0, 1e-7)
    assert "only index 93 and above of 96 along axis 0" in text
    output = RIGHT.float()
    output[15:20] = 100
    assert "last tile" not in describe_mismatch([output], [RIGHT], 3.0, 1e-7)


def test_state_that_the_reference_changes_is_named() -> None:
    names = ("output 0", "norm.running_mean after the call")
    text = describe_mismatch([RIGHT.float(), RIGHT.float() + 1], [RIGHT, RIGHT], 3.0, 1e-7, names)
    assert "norm.running_mean after the call: " in text
    assert "output 0" not in text


def leaf(**changes: object) -> dict[str, object]:
    return {
        "shape": [2, 3],
        "dtype": "float32",
        "device": "cpu",
        "plain": True,
        "expanded": False,
        "overlaps": False,
    } | changes


TENSOR = {"tensor": 0}


@pytest.mark.parametrize(
    ("structure", "leaves", "words"),
    [
        (TENSOR, [leaf(shape=[3, 2])], "shape (3, 2); the reference's has (2, 3)"),
        (TENSOR, [leaf(dtype="float16")], "dtype float16"),
        (TENSOR, [leaf(device="cuda")], "device cuda"),
        (TENSOR, [leaf(plain=False)], "subclass"),
        (TENSOR, [leaf(overlaps=True)], "share memory"),
        ({"tuple": [TENSOR]}, [leaf()], "returned a tuple of 1; the reference returns one tensor"),
        (None, [], "the plain value None"),
        ({"foreign": "a Potato"}, [], "returned a Potato"),
        ({"tensor": 0}, [], "returned one tensor"),
        ("nonsense", "nonsense", "the reference returns one tensor"),
    ],
)
def test_a_wrong_structure_is_described(structure: object, leaves: list[object], words: str) -> None:
    assert words in describe_shape(structure, leaves, TENSOR, [leaf()])


def test_a_right_structure_has_no_message() -> None:
    assert describe_shape(TENSOR, [leaf()], TENSOR, [leaf()]) == ""
