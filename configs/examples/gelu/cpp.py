import ctypes
import hashlib
import os
from pathlib import Path

import torch
from torch.utils import cpp_extension

SOURCE = r"""
#include <cmath>
#include <cstdint>

extern "C" void bias_gelu(const float* __restrict__ x, const float* __restrict__ bias, float* __restrict__ y,
                          int64_t rows, int64_t features, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t row = 0; row < rows; row++) {
    const float* from = x + row * features;
    float* to = y + row * features;
    for (int64_t i = 0; i < features; i++) {
      const float v = from[i] + bias[i];
      to[i] = 0.5f * v * (1.0f + erff(v * 0.70710678f));
    }
  }
}
"""
FLAGS = ["-O3", "-march=native", "-fopenmp"]


def build(source: str) -> ctypes.CDLL:
    name = "kernel_" + hashlib.sha256((source + str(FLAGS)).encode()).hexdigest()[:16]
    folder = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or cpp_extension.get_default_build_root()) / name
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "kernel.cpp"
    if not file.exists():
        file.write_text(source)
    cpp_extension.load(
        name=name,
        sources=[str(file)],
        extra_cflags=FLAGS,
        extra_ldflags=["-fopenmp"],
        build_directory=str(folder),
        is_python_module=False,
    )
    return ctypes.CDLL(str(folder / f"{name}.so"))


LIBRARY = build(SOURCE)
LIBRARY.bias_gelu.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int64] * 2 + [ctypes.c_int]


class ModelNew(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.randn(features))

    def forward(self, x):
        x, bias = x.contiguous(), self.bias.contiguous()
        y = torch.empty_like(x)
        features = x.shape[-1]
        LIBRARY.bias_gelu(
            x.data_ptr(), bias.data_ptr(), y.data_ptr(), x.numel() // features, features, torch.get_num_threads()
        )
        return y
