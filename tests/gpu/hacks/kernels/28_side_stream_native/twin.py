"""Twin of 28: two streams in C++, joined by an event before the function returns."""

import ctypes

import torch
from torch import nn
from torch.utils.cpp_extension import load

SOURCE = r"""
__global__ void square(const float* x, float* y, long count) {
  long at = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (at < count) y[at] = x[at] * x[at];
}
extern "C" void run(const float* x, float* y, long count, void* given) {
  static cudaStream_t side;
  static cudaEvent_t ready, done;
  cudaStream_t current = (cudaStream_t)given;
  if (!side) {
    cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&ready, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&done, cudaEventDisableTiming);
  }
  long half = count / 2;
  cudaEventRecord(ready, current);
  cudaStreamWaitEvent(side, ready, 0);
  square<<<(half + 255) / 256, 256, 0, side>>>(x, y, half);
  square<<<(count - half + 255) / 256, 256, 0, current>>>(x + half, y + half, count - half);
  cudaEventRecord(done, side);
  cudaStreamWaitEvent(current, done, 0);
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
