"""The form of a wrong output is described."""

import pytest

from kbevolve.evaluators.feedback.form import describe_shape


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
