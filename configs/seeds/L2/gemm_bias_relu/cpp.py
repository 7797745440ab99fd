"""L2/gemm_bias_relu in C++: relu(x @ W.T + bias) in fp32, from scalar dot products up to a fused, register-tiled kernel.

The declared values are the naive kernel: a dot product for each entry, then a second pass for bias and ReLU. What the
tunables do:

- ``INNER``: ``dot`` sums along K one product at a time. ``lanes`` sums LANES products at a time, MR rows of x by NR rows
  of W together, as both lie contiguous along K. ``tile`` transposes W into strips, block by block, and keeps MR x
  (NR x LANES) entries of the output in registers, so that no lanes are left to add up.
- ``MR``, ``NR``, ``LANES``: that register tile.
- ``FUSE``: bias and ReLU while the entries are still in registers, instead of a second pass over the output.
- ``STREAM``: write finished entries past the caches (non-temporal stores; ``tile`` with ``FUSE`` only).
- ``PACK_X``: copy the rows of x into the order in which ``tile`` reads them.
- ``BLOCK_M``: rows handed to a thread at a time; 0 gives every thread one equal share.
- ``PARALLEL``: share the row blocks out to torch's number of threads.

W is packed anew in every call, so a changed weight is never missed. The blocking and the register tile follow K. Goto
and R. van de Geijn, "Anatomy of High-Performance Matrix Multiplication", ACM TOMS 34(3), 2008.
"""

import ctypes
import hashlib
import os
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils import cpp_extension

SOURCE = r"""
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum Inner { dot, lanes, tile };

#define INNER dot   // tune: dot, lanes, tile
#define PARALLEL 0  // tune: 0, 1
#define FUSE 0      // tune: 0, 1
#define STREAM 0    // tune: 0, 1
#define PACK_X 0    // tune: 0, 1
#define BLOCK_M 0   // tune: 0, 48, 96, 192
#define MR 4        // tune: 2, 4, 6, 8, 12
#define NR 2        // tune: 1, 2, 3, 4
#define LANES 8     // tune: 4, 8, 16

constexpr long BLOCK_K = 256;      // 256 x 32 floats of W are 32 KB: a strip fits a first-level cache
constexpr long BLOCK_N = 1024;      // and a block of W, 1 MB, stays in the second or third level
constexpr long WIDTH = NR * LANES;  // columns of a register tile

// GCC lowers a vector to what the machine has; rows may start anywhere, so memory is read unaligned.
typedef float vec __attribute__((vector_size(4 * LANES)));
typedef vec memory_vec __attribute__((aligned(4), may_alias));

static inline long least(long x, long y) { return x < y ? x : y; }
static inline long up(long x, long step) { return (x + step - 1) / step * step; }
static inline float* buffer(long floats) { return (float*)aligned_alloc(64, up(floats * 4 + 64, 64)); }

// Past the caches where the machine can and the address is aligned, else as usual.
static inline void stream(float* to, vec value) {
  if ((uintptr_t)to % sizeof(vec) == 0) {
#if LANES == 16 && defined(__AVX512F__)
    return __builtin_ia32_movntps512(to, value);
#elif LANES == 8 && defined(__AVX__)
    return __builtin_ia32_movntps256(to, value);
#elif LANES == 4 && defined(__SSE__)
    return __builtin_ia32_movntps(to, value);
#endif
  }
  *(memory_vec*)to = value;
}

static inline void finish_streaming() {
#ifdef __SSE__
  if (STREAM) __builtin_ia32_sfence();
#endif
}

static inline float finish(float value, float bias) { return value + bias > 0 ? value + bias : 0; }

// A block of the output, m x n, over k of the K products. `first` and `last` say where in K it is.
struct Block {
  const float *x, *w, *bias;
  float* out;
  long m, n, k, K, N;
  bool first, last;
};

static void block_dot(const Block& b) {
  for (long i = 0; i < b.m; i++)
    for (long j = 0; j < b.n; j++) {
      float sum = b.first ? 0 : b.out[i * b.N + j];
      for (long p = 0; p < b.k; p++) sum += b.x[i * b.K + p] * b.w[j * b.K + p];
      b.out[i * b.N + j] = FUSE && b.last ? finish(sum, b.bias[j]) : sum;
    }
}

// Rows and columns past the edge repeat the last one and are not stored.
static void block_lanes(const Block& b) {
  for (long i = 0; i < b.m; i += MR)
    for (long j = 0; j < b.n; j += NR) {
      const float *x[MR], *w[NR];
      for (int r = 0; r < MR; r++) x[r] = b.x + least(i + r, b.m - 1) * b.K;
      for (int c = 0; c < NR; c++) w[c] = b.w + least(j + c, b.n - 1) * b.K;
      vec sum[MR][NR] = {};
      long p = 0;
      for (; p + LANES <= b.k; p += LANES)
#pragma GCC unroll 16
        for (int r = 0; r < MR; r++)
#pragma GCC unroll 16
          for (int c = 0; c < NR; c++) sum[r][c] += *(const memory_vec*)(x[r] + p) * *(const memory_vec*)(w[c] + p);
      for (int r = 0; r < MR && i + r < b.m; r++)
        for (int c = 0; c < NR && j + c < b.n; c++) {
          float part[LANES], total = 0;
          memcpy(part, &sum[r][c], sizeof part);
          for (int l = 0; l < LANES; l++) total += part[l];
          for (long q = p; q < b.k; q++) total += x[r][q] * w[c][q];
          float* out = b.out + (i + r) * b.N + j + c;
          if (!b.first) total += *out;
          *out = FUSE && b.last ? finish(total, b.bias[j + c]) : total;
        }
    }
}

// One register tile: W is k x WIDTH packed; entry (r, p) of x is x[r * row + p * step]. Rows past m repeat row m - 1
// and are not stored, columns past n are not stored.
static void micro(const float* x, long row, long step, const float* packed_w, const Block& b, long i, long j) {
  const long m = least(MR, b.m - i), n = least(WIDTH, b.n - j);
  vec sum[MR][NR] = {};
  long offset[MR];
#pragma GCC unroll 16
  for (int r = 0; r < MR; r++) offset[r] = least(r, m - 1) * row;
  for (long p = 0; p < b.k; p++) {
    vec right[NR];
#pragma GCC unroll 16
    for (int v = 0; v < NR; v++) right[v] = *(const memory_vec*)(packed_w + p * WIDTH + v * LANES);
#pragma GCC unroll 16
    for (int r = 0; r < MR; r++) {
      const float left = x[offset[r] + p * step];
#pragma GCC unroll 16
      for (int v = 0; v < NR; v++) sum[r][v] += left * right[v];
    }
  }
  float edge[MR][WIDTH];
#pragma GCC unroll 16
  for (int r = 0; r < MR; r++)
#pragma GCC unroll 16
    for (int v = 0; v < NR; v++) {
      float* out = b.out + (i + r) * b.N + j + v * LANES;
      vec value = sum[r][v];
      if (m < MR || n < WIDTH) {
        *(memory_vec*)&edge[r][v * LANES] = value;
        continue;
      }
      if (!b.first) value += *(memory_vec*)out;
      if (FUSE && b.last) {
        value += *(const memory_vec*)(b.bias + j + v * LANES);
        value = value > 0 ? value : vec{};
      }
      if (STREAM && FUSE && b.last)
        stream(out, value);
      else
        *(memory_vec*)out = value;
    }
  if (m == MR && n == WIDTH) return;
  for (long r = 0; r < m; r++)
    for (long c = 0; c < n; c++) {
      float* out = b.out + (i + r) * b.N + j + c;
      const float value = b.first ? edge[r][c] : *out + edge[r][c];
      *out = FUSE && b.last ? finish(value, b.bias[j + c]) : value;
    }
}

// Strip of W as k x WIDTH: `n` rows of W become columns, missing ones zeros.
static void pack_w(const float* w, long K, float* out, long n, long k) {
  for (long j = 0; j < WIDTH; j++)
    for (long p = 0; p < k; p++) out[p * WIDTH + j] = j < n ? w[j * K + p] : 0;
}

// Tiles of MR rows, each k x MR; short tiles repeat the last row.
static void pack_x(const Block& b, float* out) {
  for (long i = 0; i < b.m; i += MR, out += b.k * MR)
    for (int r = 0; r < MR; r++) {
      const float* row = b.x + least(i + r, b.m - 1) * b.K;
      for (long p = 0; p < b.k; p++) out[p * MR + r] = row[p];
    }
}

extern "C" void gemm_bias_relu(const float* x, const float* w, const float* bias, float* out, long M, long N, long K,
                               int threads) {
  const int team = PARALLEL ? threads : 1;
  const long mc = BLOCK_M ? BLOCK_M : up((M + team - 1) / team, MR);
  const long nc = least(BLOCK_N, N), kc = least(BLOCK_K, K);
  float* packed_w = INNER == tile ? buffer(up(nc, WIDTH) * kc) : nullptr;
#pragma omp parallel num_threads(team) if (team > 1)
  {
    float* packed_x = INNER == tile && PACK_X ? buffer(up(least(mc, M), MR) * kc) : nullptr;
    for (long jc = 0; jc < N; jc += nc)
      for (long pc = 0; pc < K; pc += kc) {
        const long n = least(nc, N - jc), k = least(kc, K - pc);
        if (INNER == tile) {
#pragma omp for schedule(static)
          for (long j = 0; j < n; j += WIDTH)
            pack_w(w + (jc + j) * K + pc, K, packed_w + j * k, least(WIDTH, n - j), k);
        }
#pragma omp for schedule(dynamic)
        for (long ic = 0; ic < M; ic += mc) {
          const Block b = {x + ic * K + pc, w + jc * K + pc, bias + jc, out + ic * N + jc, least(mc, M - ic),
                           n, k, K, N, pc == 0, pc + k == K};
          if (INNER == dot) block_dot(b);
          if (INNER == lanes) block_lanes(b);
          if (INNER == tile) {
            if (packed_x) pack_x(b, packed_x);
            for (long j = 0; j < n; j += WIDTH)
              for (long i = 0; i < b.m; i += MR)
                micro(packed_x ? packed_x + i * k : b.x + i * K, packed_x ? 1 : K, packed_x ? MR : 1,
                      packed_w + j * k, b, i, j);
          }
        }
      }
    if (!FUSE) {
#pragma omp for schedule(static)
      for (long i = 0; i < M; i++)
        for (long j = 0; j < N; j++) out[i * N + j] = finish(out[i * N + j], bias[j]);
    }
    finish_streaming();
    free(packed_x);
  }
  free(packed_w);
}
"""

FLAGS = ["-O3", "-march=native", "-fopenmp", "-Wno-psabi"]


def build(name: str) -> ctypes.CDLL:
    """Compile SOURCE in torch's extension folder and load it; the hash in the path keeps every variant apart."""
    key = hashlib.sha256("\n".join([SOURCE, *FLAGS]).encode()).hexdigest()[:16]
    root = os.environ.get("TORCH_EXTENSIONS_DIR") or cpp_extension.get_default_build_root()
    folder = Path(root) / f"{name}_{key}"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.cpp"
    if not file.exists():
        with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".draft", delete=False) as draft:
            draft.write(SOURCE)
        os.replace(draft.name, file)  # whole or not at all, should two processes build the same variant
    cpp_extension.load(
        name=f"{name}_{key}",
        sources=[str(file)],
        extra_cflags=FLAGS,
        extra_ldflags=["-fopenmp"],
        build_directory=str(folder),
        is_python_module=False,
        verbose=False,
    )
    return ctypes.CDLL(str(folder / f"{name}_{key}.so"))


GEMM_BIAS_RELU = build("gemm_bias_relu").gemm_bias_relu
GEMM_BIAS_RELU.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_long] * 3 + [ctypes.c_int]


class ModelNew(nn.Module):
    """relu(x @ W.T + bias) of x (BATCH, in_features), fp32 on the CPU."""

    def __init__(self, in_features: int, out_features: int):
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features, bias=False)
        self.bias = nn.Parameter(torch.randn(out_features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dtype != torch.float32 or x.device.type != "cpu":
            raise TypeError(f"this kernel takes fp32 on the CPU, not {x.dtype} on {x.device}")
        x, weight, bias = x.contiguous(), self.gemm.weight.contiguous(), self.bias.contiguous()
        (rows, depth), columns = x.shape, bias.numel()
        out = torch.empty(rows, columns)
        GEMM_BIAS_RELU(
            x.data_ptr(),
            weight.data_ptr(),
            bias.data_ptr(),
            out.data_ptr(),
            rows,
            columns,
            depth,
            torch.get_num_threads(),
        )
        return out
