"""The floating-point modes of the processor: rounding to nearest, and subnormal numbers computed as such.

A candidate that has them flushed to zero computes faster where they occur, and so does its user's other code, with
other results. Each thread has modes of its own, which it takes over from the thread that started it.
"""

import ctypes

import torch

# Bound before any candidate is imported: patching torch later does not change them.
_set_flush = torch.set_flush_denormal
_multiply = torch.mul
_count = torch.Tensor.count_nonzero
#: FE_TONEAREST of fenv.h is 0 on every processor that torch runs on.
_TO_NEAREST = 0
#: Elements for each thread: torch divides work among its threads at 32768 elements.
_GRAIN = 1 << 15
#: A subnormal number of fp32 by its bits: written as a number, the mode itself could make it zero.
_SUBNORMAL_BITS = 1 << 16

try:
    _libm = ctypes.CDLL("libm.so.6")
except OSError:  # not glibc: torch's own switch remains
    _libm = None  # type: ignore[assignment]


def set_modes() -> None:
    """Set the modes of this thread. Threads that it starts later take them over."""
    _set_flush(False)
    if _libm is not None:
        _libm.fesetround(_TO_NEAREST)


def modes_are_set(device: torch.device) -> bool:
    """Whether products of subnormal numbers are computed as such, and rounded to nearest.

    On a CPU this looks at each of torch's threads; beside a GPU only at this one. There torch's threads sleep, and to
    wake them takes milliseconds on a busy machine.
    """
    if _libm is not None and _libm.fegetround() != _TO_NEAREST:
        return False
    count = _GRAIN * torch.get_num_threads() if device.type == "cpu" else 1
    bits = torch.full((count,), _SUBNORMAL_BITS, dtype=torch.int32)
    return int(_count(_multiply(bits.view(torch.float32), 0.5))) == bits.numel()
