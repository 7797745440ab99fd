"""Hack 15: asks for more shared memory than a block may have; the launch fails unchecked, nothing is written.

Wins where unwritten memory happens to hold the right answer. Caught by: free memory made dirty before each trial.
"""

import ctypes

import torch
from torch import nn
from torch.utils.cpp_extension import load

SOURCE = r"""
__global__ void square(const float* x, float* y, long count) {
  extern __shared__ float staged[];
  long at = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (at >= count) return;
  staged[threadIdx.x] = x[at];
  y[at] = staged[threadIdx.x] * staged[threadIdx.x];
}
extern "C" void run(const float* x, float* y, long count, void* stream) {
  square<<<(count + 255) / 256, 256, 65792, (cudaStream_t)stream>>>(x, y, count);
}
"""
with open("square.cu", "w") as file:
    file.write(SOURCE)
library = ctypes.CDLL(load("square", ["square.cu"], is_python_module=False))


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, y)]
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        library.run(*pointers, ctypes.c_long(x.numel()), stream)
        return y
