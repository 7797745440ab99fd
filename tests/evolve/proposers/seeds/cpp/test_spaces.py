"""Where elements lie: rows and offsets against counting."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbevolve.evaluators.graph.records import TensorSpec
from kbevolve.evolve.proposers.seeds.cpp.spaces import offset, repeated, space_of


def place(shape: tuple[int, ...], strides: tuple[int, ...], number: int) -> int:
    """Where element `number` lies, counted in the order of the axes."""
    indices = list(itertools.product(*map(range, shape)))[number]
    return sum(index * stride for index, stride in zip(indices, strides, strict=True))


def value(text: str, row: int) -> int:
    """C++ of sums, products, quotients and remainders of natural numbers."""
    return int(eval(text.replace("/", "//"), {"row": row, "j": row}))


shapes = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


@given(shapes, st.data())
def test_an_offset_is_the_place_of_an_element(shape: tuple[int, ...], data: st.DataObject) -> None:
    strides = tuple(data.draw(st.sampled_from([0, 1, 2, 7, 30])) for _ in shape)
    text = offset(shape, strides, "row")
    count = 1
    for size in shape:
        count *= size
    assert [value(text, row) for row in range(count)] == [place(shape, strides, row) for row in range(count)]


@given(shapes, st.data())
def test_rows_visit_every_element_where_it_lies(shape: tuple[int, ...], data: st.DataObject) -> None:
    tensors = {name: tuple(data.draw(st.sampled_from([0, 1, 2, 7, 30])) for _ in shape) for name in ("a0", "a1")}
    split = data.draw(st.none() | st.integers(0, len(shape)))
    space = space_of(shape, tensors, split=split)
    if space is None:
        assert split is not None
        return
    for name, strides in tensors.items():
        visited = [
            value(space.row_offset(name), row) + j * space.inner_stride[name]
            for row in range(space.rows)
            for j in range(space.inner)
        ]
        assert visited == [place(shape, strides, number) for number in range(len(visited))]


@pytest.mark.parametrize(
    ("spec", "shape", "channel", "strides"),
    [
        (((5,), (1,)), (3, 4, 5), False, (0, 0, 1)),
        (((4, 1), (1, 1)), (3, 4, 5), False, (0, 1, 0)),
        (((), ()), (3, 4), False, (0, 0)),
        (((4,), (1,)), (3, 4, 5), True, (0, 1, 0)),
        (((4,), (1,)), (3, 4, 5), False, None),
        (((2, 3, 4), (12, 4, 1)), (3, 4), False, None),
    ],
)
def test_broadcast_axes_have_no_stride(
    spec: tuple[tuple[int, ...], tuple[int, ...]],
    shape: tuple[int, ...],
    channel: bool,
    strides: tuple[int, ...] | None,
) -> None:
    tensor = TensorSpec(shape=spec[0], stride=spec[1], dtype="float32")
    assert repeated(tensor, shape, channel=channel) == strides
