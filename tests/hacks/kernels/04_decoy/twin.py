"""Twin of 4: a compiled kernel beside calls of torch as well; the kernel computes, torch transposes and allocates."""

import ctypes

import torch
from torch import nn
from torch.utils.cpp_extension import load

SOURCE = r"""
extern "C" void product(const float* a, const float* columns, float* c, long m, long k, long n) {
  #pragma omp parallel for
  for (long i = 0; i < m; i++)
    for (long j = 0; j < n; j++) {
      float sums[8] = {};
      for (long at = 0; at < k; at += 8)
        for (long lane = 0; lane < 8; lane++) sums[lane] += a[i * k + at + lane] * columns[j * k + at + lane];
      c[i * n + j] = 0;
      for (float sum : sums) c[i * n + j] += sum;
    }
}
"""
with open("product.cpp", "w") as file:
    file.write(SOURCE)
flags = ["-O3", "-march=native", "-fopenmp"]
library = ctypes.CDLL(load("product", ["product.cpp"], extra_cflags=flags, is_python_module=False))


class ModelNew(nn.Module):
    def forward(self, a, b):
        (m, k), n = a.shape, b.shape[1]
        columns = b.T.contiguous()
        c = torch.empty(m, n)
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (a, columns, c)]
        library.product(*pointers, *(ctypes.c_long(size) for size in (m, k, n)))
        return c
