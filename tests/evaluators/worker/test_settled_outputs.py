"""Outputs in the reference's layout, exact containers, and elements that share memory."""

from collections import OrderedDict
from typing import Any, NamedTuple

import hypothesis
import hypothesis.strategies as st
import pytest
import torch

from kbevolve.evaluators.worker.outputs import facts_of, overlaps, settle


class Pair(NamedTuple):
    one: torch.Tensor
    other: torch.Tensor


class Later(list[torch.Tensor]):
    pass


class Ordered(OrderedDict[str, torch.Tensor]):
    pass


def layout(*shape: int) -> list[int]:
    return list(torch.empty(shape).stride())


def test_a_tensor_of_the_right_layout_is_not_copied() -> None:
    tensor = torch.rand(3, 4)
    found = settle(tensor, [layout(3, 4)])
    assert found.settled[0] is tensor
    assert settle(tensor[:1], [[99, 1]]).settled[0].data_ptr() == tensor.data_ptr(), "an axis of one has any stride"


@pytest.mark.parametrize(
    "view",
    [torch.rand(4, 3).t(), torch._neg_view(torch.rand(3, 4)), torch.rand(3, 8)[:, ::2], torch.rand(3, 1).expand(3, 4)],
    ids=["transposed", "negated", "strided", "expanded"],
)
def test_views_are_copied_in_the_window(view: torch.Tensor) -> None:
    found = settle(view, [layout(3, 4)])
    assert torch.equal(found.settled[0], view)
    assert found.settled[0].is_contiguous()
    assert not found.settled[0].is_neg()
    assert found.leaves[0] is view, "facts are of what was returned"


def test_memory_that_is_copied_when_it_is_used_is_copied_in_the_window() -> None:
    source = torch.rand(3, 4)
    lazy = torch._lazy_clone(source)  # type: ignore[attr-defined]
    assert torch._C._is_cow_tensor(lazy)  # type: ignore[attr-defined]
    settle((lazy,), [layout(3, 4)])
    assert not torch._C._is_cow_tensor(lazy)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "output", [Pair(torch.rand(2), torch.rand(2)), Later([torch.rand(2)]), Ordered(a=torch.rand(2))]
)
def test_containers_are_exact(output: Any) -> None:
    assert "foreign" in settle(output, [layout(2)] * 2).structure


def test_what_torch_and_python_offer_is_a_tuple_or_a_dict() -> None:
    assert "dict" in settle(OrderedDict(a=torch.rand(2)), [layout(2)]).structure
    found = settle(torch.max(torch.rand(3, 4), dim=1), [layout(3), layout(3)])
    assert "tuple" in found.structure


def test_a_structure_of_another_size_is_left_alone() -> None:
    assert len(settle([torch.rand(2)] * 3, [layout(2)]).settled) == 3


@pytest.mark.parametrize(
    ("tensors", "shared"),
    [
        ([torch.rand(4, 4)], False),
        ([torch.rand(8).unfold(0, 3, 1)], True),
        ([torch.rand(1).expand(3)], True),
        ([torch.rand(6).as_strided((2, 2), (3, 2))], False),
        (list(torch.rand(4, 6).chunk(3, dim=1)), False),
        (list(torch.rand(2, 6)), False),
        ([torch.ones(3)] * 2, True),
        ([torch.zeros(0), torch.zeros(0)], False),
    ],
    ids=["dense", "windows", "expanded", "odd strides", "columns", "rows", "twice", "empty"],
)
def test_overlaps(tensors: list[torch.Tensor], shared: bool) -> None:
    assert overlaps(tensors) is shared


@hypothesis.given(
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    strides=st.lists(st.integers(0, 9), min_size=3, max_size=3),
    offset=st.integers(0, 3),
)
def test_overlaps_agrees_with_counting(shape: list[int], strides: list[int], offset: int) -> None:
    memory = torch.arange(128.0)
    view = memory.as_strided(shape, strides[: len(shape)], offset)
    assert overlaps([view]) is (view.unique().numel() < view.numel())


def test_a_subclass_is_not_plain() -> None:
    parameter = torch.nn.Parameter(torch.rand(2))
    assert facts_of([parameter], [])[0]["plain"] is False
