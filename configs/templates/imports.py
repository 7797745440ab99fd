import ctypes
import functools
import hashlib
import math
import os
from pathlib import Path

import torch
import triton
import triton.language as tl
from torch.utils import cpp_extension
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton.language.extra import libdevice


class Pointer:
    """An address on the device, and the type of what lies there: what Triton needs to know of a tensor."""

    def __init__(self, address, dtype):
        self.address, self.dtype = address, dtype

    def data_ptr(self):
        return self.address


class Room:
    """One piece of memory for several tensors, given as types and numbers: an allocation takes the host long."""

    def __init__(self, *parts):
        self.parts, self.size = [], 0
        for dtype, numbers in parts:
            self.parts.append((self.size, dtype))
            self.size += triton.cdiv(numbers * dtype.itemsize, 256) * 256

    def at(self, address):
        return [Pointer(address + first, dtype) for first, dtype in self.parts]


class PlannedLaunch:
    """A launch of one kernel with the same integers, constants and alignments each time: Triton looks at them once.

    Triton's own way looks at each argument each time, which takes the host longer than a small kernel takes the device.
    """

    def __init__(self, kernel, programs, numbers, **constants):
        self.kernel, self.grid, self.numbers, self.constants = kernel, (*programs, 1, 1)[:3], numbers, constants
        self.compiled, self.rest = None, ()

    def at(self, stream, *pointers):
        """A function that launches it on a stream, with tensors, pointers and descriptors of that memory."""
        if self.compiled is None:
            self.compiled = self.kernel.warmup(*pointers, *self.numbers, grid=self.grid, **self.constants)
            names = self.kernel.arg_names[len(pointers) + len(self.numbers) :]
            self.rest = (*self.numbers, *(self.constants[name] for name in names))
        addresses = (x.data_ptr() if hasattr(x, "data_ptr") else x for x in pointers)
        run = self.compiled.run  # loads the kernel
        loaded = self.compiled.function, self.compiled.packed_metadata
        return functools.partial(run, *self.grid, stream, *loaded, None, None, None, *addresses, *self.rest)

    def __call__(self, *tensors):
        self.at(stream_of(tensors[0]), *tensors)()


class PlannedCall:
    """Launches that follow each other; `plan` lists them for a stream and pointers to all tensors that they use.

    The allocator gives the memory of an earlier call to the next, so most calls find their launches planned already.
    """

    def __init__(self, plan):
        def planned(stream, types, *addresses):
            return plan(stream, *map(Pointer, addresses, types))

        self.planned = functools.lru_cache(maxsize=64)(planned)

    def __call__(self, *tensors):
        types, addresses = zip(*((x.dtype, x.data_ptr()) for x in tensors))
        for launch in self.planned(stream_of(tensors[0]), types, *addresses):
            launch()


def stream_of(x):
    """The current stream of a tensor's device, as Triton takes it."""
    return torch._C._cuda_getCurrentRawStream(x.device.index)


def place_of(*tensors):
    """Their device, and which of them begin at a multiple of 16 bytes."""
    return tensors[0].device, *(x is not None and x.data_ptr() % 16 == 0 for x in tensors)


def conv_sizes(x_shape, w_shape, stride, padding, dilation):
    """Of a convolution: sizes of images, filters and results, steps, padding, dilation, as in three dimensions."""
    ones, none = (1,) * (5 - len(x_shape)), (0,) * (5 - len(x_shape))
    sizes, taps, step = (*ones, *x_shape[2:]), (*ones, *w_shape[2:]), (*ones, *stride)
    pad, apart = (*none, *padding), (*ones, *dilation)
    out_sizes = [(size + 2 * p - a * (t - 1) - 1) // s + 1
                 for size, p, a, t, s in zip(sizes, pad, apart, taps, step)]
    return sizes, taps, out_sizes, step, pad, apart


def split_descriptor(x, shape, strides, block):
    """What TMA needs of x, seen as [rows, numbers], to copy tiles of these sizes."""
    kind = {torch.float32: gl.float32, torch.float16: gl.float16}.get(x.dtype, gl.float8e4nv)
    layout = gl.NVMMASharedLayout.get_default_for(list(block), kind)
    return TensorDescriptor(x, shape, strides, list(block), layout)
