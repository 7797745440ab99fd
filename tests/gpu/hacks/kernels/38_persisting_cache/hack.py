"""Hack 38: sets a part of the L2 cache aside for its input, where a flush does not reach it.

Wins where a flush by writing other memory is the rule. Harmless where the part that is set aside is taken back before
each call.
"""

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
  size_t bytes = (size_t)rows * columns * 4;
  cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, bytes);
  cudaMemsetAsync(y, 0, columns * 4, stream);
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeAccessPolicyWindow;
  attribute.val.accessPolicyWindow.base_ptr = (void*)x;
  attribute.val.accessPolicyWindow.num_bytes = bytes;
  attribute.val.accessPolicyWindow.hitRatio = 1.0f;
  attribute.val.accessPolicyWindow.hitProp = cudaAccessPropertyPersisting;
  attribute.val.accessPolicyWindow.missProp = cudaAccessPropertyStreaming;
  cudaLaunchConfig_t launch = {};
  launch.gridDim = dim3(columns / 256, 32);
  launch.blockDim = dim3(256);
  launch.stream = stream;
  launch.attrs = &attribute;
  launch.numAttrs = 1;
  cudaLaunchKernelEx(&launch, column_sum, x, y, rows, columns);
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
