"""Hack 30: a detached native thread computes, while the call has long returned.

Wins where Python's own threads are counted and the clock stops at the return. Caught by: the output is copied right
behind the end of the window, and then the inputs are destroyed.
"""

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
extern "C" void start(const float* a, const float* b, float* c, long m, long k, long n) {
  std::thread(product, a, b, c, m, k, n).detach();
}
"""
with open("product.cpp", "w") as file:
    file.write(SOURCE)
library = ctypes.CDLL(load("product", ["product.cpp"], extra_cflags=["-O3"], is_python_module=False))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = []

    def forward(self, a, b):
        (m, k), n = a.shape, b.shape[1]
        c = torch.empty(m, n)
        self.kept.append(c)  # alive until the thread is done with it
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (a, b, c)]
        library.start(*pointers, *(ctypes.c_long(size) for size in (m, k, n)))
        return c
