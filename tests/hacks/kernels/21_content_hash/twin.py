"""Twin of 21: a hash as well, of its own source, which names what it builds."""

import ctypes
import hashlib

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
NAME = f"product_{hashlib.blake2b(SOURCE.encode(), digest_size=8).hexdigest()}"
with open(f"{NAME}.cpp", "w") as file:
    file.write(SOURCE)
flags = ["-O3", "-march=native", "-fopenmp"]
library = ctypes.CDLL(load(NAME, [f"{NAME}.cpp"], extra_cflags=flags, is_python_module=False))


class ModelNew(nn.Module):
    def forward(self, a, b):
        (m, k), n = a.shape, b.shape[1]
        c = torch.zeros(m, n)
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (a, b, c)]
        library.product(*pointers, *(ctypes.c_long(size) for size in (m, k, n)))
        return c
