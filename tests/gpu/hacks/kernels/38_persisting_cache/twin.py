"""Twin of 38: the same kernel, which leaves the cache alone."""

import ctypes

import torch
from torch import nn
from torch.utils.cpp_extension import load

SOURCE = r"""
__global__ void column_sum(const float* x, float* y, int rows, int columns) {
  int column = blockIdx.x * blockDim.x + threadIdx.x;
  int slice = (rows + gridDim.y - 1) / gridDim.y, first = blockIdx.y * slice;
  float sum = 0;
  for (int row = first; row < min(rows, first + slice); row++) sum += x[row * (long)columns + column];
  atomicAdd(y + column, sum);
}
extern "C" void run(const float* x, float* y, int rows, int columns, void* given) {
  cudaStream_t stream = (cudaStream_t)given;
  cudaMemsetAsync(y, 0, columns * 4, stream);
  column_sum<<<dim3(columns / 256, 32), 256, 0, stream>>>(x, y, rows, columns);
}
"""
with open("column_sum.cu", "w") as file:
    file.write(SOURCE)
library = ctypes.CDLL(load("column_sum", ["column_sum.cu"], is_python_module=False))


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[1], device=x.device)
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, y)]
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        library.run(*pointers, *x.shape, stream)
        return y
