"""Twin of 6: imports a package as well, for arithmetic on sizes, and computes in a kernel of its own."""

import ctypes

import numpy
import torch
from torch import nn
from torch.utils.cpp_extension import load

SOURCE = r"""
extern "C" void product(const float* a, const float* b, float* __restrict c, long first, long last, long k, long n) {
  #pragma omp parallel for
  for (long i = first; i < last; i++) {
    for (long j = 0; j < n; j++) c[i * n + j] = 0;
    for (long at = 0; at < k; at++)
      for (long j = 0; j < n; j++) c[i * n + j] += a[i * k + at] * b[at * n + j];
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
        c = torch.empty(m, n)
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (a, b, c)]
        first, middle, last = (int(edge) for edge in numpy.linspace(0, m, 3))
        for part in ((first, middle), (middle, last)):
            library.product(*pointers, *(ctypes.c_long(size) for size in (*part, k, n)))
        return c
