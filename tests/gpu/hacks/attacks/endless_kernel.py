"""A kernel that never ends."""

import ctypes

import torch
from torch import nn
from torch.utils.cpp_extension import load

SOURCE = r"""
__global__ void spin(volatile float* y) { while (y[0] == y[0] || y[0] != y[0]) __nanosleep(1000); }
extern "C" void run(float* y, void* stream) { spin<<<1, 1, 0, (cudaStream_t)stream>>>(y); }
"""
with open("spin.cu", "w") as file:
    file.write(SOURCE)
library = ctypes.CDLL(load("spin", ["spin.cu"], is_python_module=False))


class ModelNew(nn.Module):
    def forward(self, x):
        y = x * x
        library.run(ctypes.c_void_p(y.data_ptr()), ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
        return y
