import ctypes
import hashlib
import os
from pathlib import Path

import torch
from torch.utils import cpp_extension

SOURCE = r"""
#include <cmath>
#include <cstdint>
#define WIDTH 64
#define KEYS 64  // tune: 16, 32, 64, 128

// One query against all keys: of each block the largest score so far, the sum of exponentials and the weighted values.
static void attend(const float* q, const float* k, const float* v, float* out, int64_t keys) {
  float largest = -3e38f, total = 0.0f, sum[WIDTH] = {}, weight[KEYS];
  for (int64_t start = 0; start < keys; start += KEYS) {
    const int64_t count = keys - start < KEYS ? keys - start : KEYS;
    float most = largest;
    for (int64_t j = 0; j < count; j++) {
      float score = 0.0f;
#pragma omp simd reduction(+ : score)
      for (int d = 0; d < WIDTH; d++) score += q[d] * k[(start + j) * WIDTH + d];
      weight[j] = score * 0.125f;  // 1 / sqrt(WIDTH)
      most = weight[j] > most ? weight[j] : most;
    }
    const float shrink = expf(largest - most);
    total *= shrink;
#pragma omp simd
    for (int d = 0; d < WIDTH; d++) sum[d] *= shrink;
    for (int64_t j = 0; j < count; j++) {
      const float p = expf(weight[j] - most);
      total += p;
#pragma omp simd
      for (int d = 0; d < WIDTH; d++) sum[d] += p * v[(start + j) * WIDTH + d];
    }
    largest = most;
  }
  for (int d = 0; d < WIDTH; d++) out[d] = sum[d] / total;
}

extern "C" void attention(const float* __restrict__ q, const float* __restrict__ k, const float* __restrict__ v,
                          float* __restrict__ out, int64_t heads, int64_t queries, int64_t keys, int threads) {
#pragma omp parallel for collapse(2) num_threads(threads) schedule(static)
  for (int64_t head = 0; head < heads; head++)
    for (int64_t i = 0; i < queries; i++) {
      const int64_t at = (head * queries + i) * WIDTH, other = head * keys * WIDTH;
      attend(q + at, k + other, v + other, out + at, keys);
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
LIBRARY.attention.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_int64] * 3 + [ctypes.c_int]


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        if q.shape[-1] != 64:
            raise RuntimeError("written for a width of 64")
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        out = torch.empty_like(q)
        heads, queries, keys = q.shape[0] * q.shape[1], q.shape[2], k.shape[2]
        LIBRARY.attention(
            q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr(), heads, queries, keys, torch.get_num_threads()
        )
        return out
