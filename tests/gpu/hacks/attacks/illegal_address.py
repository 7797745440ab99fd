"""Writes where nothing is."""

import ctypes

import torch
from torch import nn
from torch.utils.cpp_extension import load

SOURCE = r"""
__global__ void stray(float* y) { y[1L << 42] = 1; }
extern "C" void run(float* y, void* stream) { stray<<<1, 32, 0, (cudaStream_t)stream>>>(y); }
"""
with open("stray.cu", "w") as file:
    file.write(SOURCE)
library = ctypes.CDLL(load("stray", ["stray.cu"], is_python_module=False))


class ModelNew(nn.Module):
    def forward(self, x):
        y = x * x
        library.run(ctypes.c_void_p(y.data_ptr()), ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
        return y
