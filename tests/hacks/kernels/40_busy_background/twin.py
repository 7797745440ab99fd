"""Twin of 40: starts a program too, a compiler, and has what it built before it goes on."""

import ctypes
import os
import subprocess

import torch
from torch import nn

SOURCE = r"""
extern "C" void product(const float* a, const float* b, float* __restrict c, long m, long k, long n) {
  #pragma omp parallel for
  for (long i = 0; i < m; i++)
    for (long pass = 0; pass < k; pass++)
      for (long j = 0; j < n; j++) c[i * n + j] += a[i * k + pass] * b[pass * n + j];
}
"""
with open("product.cpp", "w") as file:
    file.write(SOURCE)
command = ["g++", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", "product.cpp", "-o", "product.so"]
subprocess.run(command, check=True)
library = ctypes.CDLL(os.path.abspath("product.so"))


class ModelNew(nn.Module):
    def forward(self, a, b):
        (m, k), n = a.shape, b.shape[1]
        c = torch.zeros(m, n)
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (a, b, c)]
        library.product(*pointers, *(ctypes.c_long(size) for size in (m, k, n)))
        return c
