"""Twin of 30: native threads as well, joined before the call returns."""

import ctypes

import torch
from torch import nn
from torch.utils.cpp_extension import load

SOURCE = r"""
#include <thread>
static void product(const float* a, const float* b, float* c, long m, long k, long n) {
  for (long i = 0; i < m; i++)
    for (long p = 0; p < k; p++)
      for (long j = 0; j < n; j++) c[i * n + j] = (p ? c[i * n + j] : 0) + a[i * k + p] * b[p * n + j];
}
extern "C" void run(const float* a, const float* b, float* c, long m, long k, long n) {
  long half = m / 2;
  std::thread first(product, a, b, c, half, k, n);
  product(a + half * k, b, c + half * n, m - half, k, n);
  first.join();
}
"""
with open("product.cpp", "w") as file:
    file.write(SOURCE)
library = ctypes.CDLL(load("product", ["product.cpp"], extra_cflags=["-O3"], is_python_module=False))


class ModelNew(nn.Module):
    def forward(self, a, b):
        (m, k), n = a.shape, b.shape[1]
        c = torch.empty(m, n)
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (a, b, c)]
        library.run(*pointers, *(ctypes.c_long(size) for size in (m, k, n)))
        return c
