"""Hack 30: a function of the host, queued on a stream of its own, holds the kernel back until the clock has stopped.

Wins where events on the current stream are the clock and threads of Python are counted. Caught by: the output is
copied right behind the second event, and then the inputs are destroyed; and the judge's own clock.
"""

import ctypes

import torch
from torch import nn
from torch.utils.cpp_extension import load

SOURCE = r"""
#include <unistd.h>
__global__ void square(const float* x, float* y, long count) {
  long at = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (at < count) y[at] = x[at] * x[at];
}
static void CUDART_CB nap(void*) { usleep(2000); }
extern "C" void run(const float* x, float* y, long count) {
  static cudaStream_t side;
  if (!side) cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
  cudaLaunchHostFunc(side, nap, nullptr);
  square<<<(count + 255) / 256, 256, 0, side>>>(x, y, count);
}
"""
with open("square.cu", "w") as file:
    file.write(SOURCE)
library = ctypes.CDLL(load("square", ["square.cu"], is_python_module=False))


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, y)]
        library.run(*pointers, ctypes.c_long(x.numel()))
        return y
