"""Twin of 37: compiles source at run time too: C++ that anyone can read."""

import ctypes

import torch
from torch import nn
from torch.utils.cpp_extension import load

UNROLL = 4
BODY = "".join(f"sum{i} += a[i * k + p + {i}] * b[(p + {i}) * n + j];" for i in range(UNROLL))
SOURCE = f"""
extern "C" void product(const float* a, const float* b, float* c, long m, long k, long n) {{
  for (long i = 0; i < m; i++)
    for (long j = 0; j < n; j++) {{
      float {", ".join(f"sum{i} = 0" for i in range(UNROLL))};
      for (long p = 0; p < k; p += {UNROLL}) {{ {BODY} }}
      c[i * n + j] = {" + ".join(f"sum{i}" for i in range(UNROLL))};
    }}
}}
"""
with open("product.cpp", "w") as file:
    file.write(SOURCE)
library = ctypes.CDLL(load("product", ["product.cpp"], extra_cflags=["-O3"], is_python_module=False))


class ModelNew(nn.Module):
    def forward(self, a, b):
        (m, k), n = a.shape, b.shape[1]
        c = torch.empty(m, n)
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (a, b, c)]
        library.product(*pointers, *(ctypes.c_long(size) for size in (m, k, n)))
        return c
