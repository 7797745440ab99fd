"""Twin of 1: a product of its own, with the library's names in comments (torch.matmul, at::mm) and in its functions."""

import ctypes

import torch
from torch import nn
from torch.utils.cpp_extension import load

SOURCE = r"""
// at::matmul(a, b) would do this too; torch::mm as well.
extern "C" void matmul(const float* a, const float* b, float* __restrict c, long m, long k, long n) {
  #pragma omp parallel for
  for (long i = 0; i < m; i++) {
    for (long j = 0; j < n; j++) c[i * n + j] = 0;
    for (long pass = 0; pass < k; pass++)
      for (long j = 0; j < n; j++) c[i * n + j] += a[i * k + pass] * b[pass * n + j];
  }
}
"""
with open("matmul.cpp", "w") as file:
    file.write(SOURCE)
flags = ["-O3", "-march=native", "-fopenmp"]
library = ctypes.CDLL(load("matmul", ["matmul.cpp"], extra_cflags=flags, is_python_module=False))


class ModelNew(nn.Module):
    def forward(self, a, b):
        (m, k), n = a.shape, b.shape[1]
        c = torch.empty(m, n)
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (a, b, c)]
        library.matmul(*pointers, *(ctypes.c_long(size) for size in (m, k, n)))
        return c
