"""Twin of 30: queues a function of the host as well, on the current stream and behind the kernel: it counts calls."""

import ctypes

import torch
from torch import nn
from torch.utils.cpp_extension import load

SOURCE = r"""
#include <atomic>
static std::atomic<long> finished{0};
__global__ void square(const float* x, float* y, long count) {
  long at = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (at < count) y[at] = x[at] * x[at];
}
static void CUDART_CB finish(void*) { finished++; }
extern "C" int run(const float* x, float* y, long count, void* given) {
  cudaStream_t stream = (cudaStream_t)given;
  square<<<(count + 255) / 256, 256, 0, stream>>>(x, y, count);
  cudaError_t error = cudaGetLastError();
  return error ? error : cudaLaunchHostFunc(stream, finish, nullptr);
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
