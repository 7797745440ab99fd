import functools

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton.language.extra import libdevice


class PlannedLaunch:
    """A launch of one kernel with the same integers, constants and alignments each time: Triton looks at them once.

    Triton's own way looks at each argument each time, which takes the host longer than a small kernel takes the device.
    """

    def __init__(self, kernel, programs, numbers, **constants):
        self.kernel, self.grid, self.numbers, self.constants = kernel, (*programs, 1, 1)[:3], numbers, constants
        self.compiled, self.rest = None, ()

    def __call__(self, *pointers):
        if self.compiled is not None:
            self.compiled[self.grid](*pointers, *self.rest)
            return
        self.compiled = self.kernel[self.grid](*pointers, *self.numbers, **self.constants)
        names = self.kernel.arg_names[len(pointers) + len(self.numbers) :]
        self.rest = (*self.numbers, *(self.constants[name] for name in names))


def place_of(*tensors):
    """Their device, and which of them begin at a multiple of 16 bytes."""
    return tensors[0].device, *(x is not None and x.data_ptr() % 16 == 0 for x in tensors)
