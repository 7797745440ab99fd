"""Twin of 51: looks into torch's folder as well, for a header, and writes into its own directory only."""

import ctypes
from pathlib import Path

import torch
from torch import nn
from torch.utils.cpp_extension import load

HEADERS = Path(torch.__file__).parent / "include"
SOURCE = r"""
#include <c10/macros/Macros.h>
extern "C" void product(const float* a, const float* b, float* C10_RESTRICT c, long m, long k, long n) {
  #pragma omp parallel for
  for (long i = 0; i < m; i++)
    for (long pass = 0; pass < k; pass++)
      for (long j = 0; j < n; j++) c[i * n + j] += a[i * k + pass] * b[pass * n + j];
}
"""
if not (HEADERS / "c10/macros/Macros.h").exists():
    SOURCE = SOURCE.replace("#include <c10/macros/Macros.h>", "#define C10_RESTRICT __restrict")
Path("torch.cpp").write_text(SOURCE)
flags = ["-O3", "-march=native", "-fopenmp", f"-I{HEADERS}"]
library = ctypes.CDLL(load("torch_product", ["torch.cpp"], extra_cflags=flags, is_python_module=False))


class ModelNew(nn.Module):
    def forward(self, a, b):
        (m, k), n = a.shape, b.shape[1]
        c = torch.zeros(m, n)
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (a, b, c)]
        library.product(*pointers, *(ctypes.c_long(size) for size in (m, k, n)))
        return c
