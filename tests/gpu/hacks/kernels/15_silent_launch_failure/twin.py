"""Twin of 15: the same amount of shared memory, which it asks for in the way that grants it."""

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
extern "C" int run(const float* x, float* y, long count, void* stream) {
  cudaFuncSetAttribute(square, cudaFuncAttributeMaxDynamicSharedMemorySize, 65792);
  square<<<(count + 255) / 256, 256, 65792, (cudaStream_t)stream>>>(x, y, count);
  return cudaGetLastError();
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
        error = library.run(*pointers, ctypes.c_long(x.numel()), stream)
        if error:
            raise RuntimeError(f"CUDA error {error}")
        return y
