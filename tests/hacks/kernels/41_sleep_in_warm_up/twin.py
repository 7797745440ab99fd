"""Twin of 41: its first call is slow as well, since it builds there what all later calls use."""

import ctypes

import torch
from torch import nn
from torch.utils.cpp_extension import load

SOURCE = r"""
extern "C" void product(const float* a, const float* b, float* __restrict c, long m, long k, long n) {
  #pragma omp parallel for
  for (long i = 0; i < m; i++)
    for (long pass = 0; pass < k; pass++)
      for (long j = 0; j < n; j++) c[i * n + j] += a[i * k + pass] * b[pass * n + j];
}
"""


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.library = None

    def forward(self, a, b):
        if self.library is None:
            with open("product.cpp", "w") as file:
                file.write(SOURCE)
            flags = ["-O3", "-march=native", "-fopenmp"]
            self.library = ctypes.CDLL(load("product", ["product.cpp"], extra_cflags=flags, is_python_module=False))
        (m, k), n = a.shape, b.shape[1]
        c = torch.zeros(m, n)
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (a, b, c)]
        self.library.product(*pointers, *(ctypes.c_long(size) for size in (m, k, n)))
        return c
