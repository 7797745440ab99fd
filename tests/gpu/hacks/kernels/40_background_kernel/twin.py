"""Twin of 40: a native thread launches a kernel as well: half of the product, on the current stream; it is joined."""

import ctypes

import torch
from torch import nn
from torch.utils.cpp_extension import load

SOURCE = r"""
#include <thread>
constexpr int TILE = 32;
__global__ void product(const float* a, const float* b, float* c, int n) {
  __shared__ float left[TILE][TILE], right[TILE][TILE];
  int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
  float total = 0;
  for (int start = 0; start < n; start += TILE) {
    left[threadIdx.y][threadIdx.x] = a[row * (long)n + start + threadIdx.x];
    right[threadIdx.y][threadIdx.x] = b[(start + threadIdx.y) * (long)n + column];
    __syncthreads();
    float part = 0;
    for (int at = 0; at < TILE; at++) part += left[threadIdx.y][at] * right[at][threadIdx.x];
    total += part;
    __syncthreads();
  }
  c[row * (long)n + column] = total;
}
static int launch(int device, const float* a, const float* b, float* c, int rows, int n, cudaStream_t stream) {
  cudaSetDevice(device);
  product<<<dim3(n / TILE, rows / TILE), dim3(TILE, TILE), 0, stream>>>(a, b, c, n);
  return cudaGetLastError();
}
extern "C" int run(int device, const float* a, const float* b, float* c, int n, void* given) {
  cudaStream_t stream = (cudaStream_t)given;
  int half = n / 2, upper = 0;
  std::thread helper([&] { upper = launch(device, a, b, c, half, n, stream); });
  long offset = half * (long)n;
  int lower = launch(device, a + offset, b, c + offset, n - half, n, stream);
  helper.join();
  return upper ? upper : lower;
}
"""
with open("product.cu", "w") as file:
    file.write(SOURCE)
library = ctypes.CDLL(load("product", ["product.cu"], is_python_module=False))


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.empty_like(a)
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (a, b, c)]
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        error = library.run(a.device.index or 0, *pointers, a.shape[0], stream)
        if error:
            raise RuntimeError(f"CUDA error {error}")
        return c
