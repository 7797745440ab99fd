"""Changed floating-point modes are seen, on the main thread and on torch's others, and set back."""

import ctypes
from collections.abc import Iterator

import pytest
import torch

from kbevolve.evaluators.worker.modes import modes_are_set, set_modes

CPU = torch.device("cpu")
UPWARD = 0x800  # FE_UPWARD of x86


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    set_modes()


def test_the_modes_are_set_at_first() -> None:
    assert modes_are_set(CPU)


@pytest.mark.skipif(not torch.set_flush_denormal(False), reason="this processor has no such mode")
def test_flushed_numbers_are_seen() -> None:
    torch.set_flush_denormal(True)
    assert not modes_are_set(CPU)
    set_modes()
    assert modes_are_set(CPU)


def test_another_rounding_is_seen() -> None:
    if ctypes.CDLL("libm.so.6").fesetround(UPWARD):
        pytest.skip("no such rounding here")
    assert not modes_are_set(CPU)
    set_modes()
    assert modes_are_set(CPU)
