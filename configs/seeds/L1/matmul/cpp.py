"""L1/matmul in C++: C = A @ B in fp32, from a plain triple loop up to packed, register-tiled blocks.

The declared values are the naive kernel. What the tunables do:

- ``INNER``: how one block is multiplied. ``ijk`` is a dot product for each entry of C, ``ikj`` adds a multiple of a
  row of B to a row of C (contiguous, so the compiler vectorises it), ``tile`` keeps MR x (NR x LANES) entries of C in
  registers through the whole K block.
- ``MR``, ``NR``, ``LANES``: the register tile: rows, vectors a row, floats a vector.
- ``BLOCK_M``, ``BLOCK_N``, ``BLOCK_K``: cache blocking, entries; 0 takes the whole dimension (BLOCK_M: a thread's share).
- ``PACK``: copy the block of B (``b``), or of A as well (``ab``), into the order in which it is read.
- ``PARALLEL``: share the row blocks out to torch's number of threads.

The blocking and the register tile follow K. Goto and R. van de Geijn, "Anatomy of High-Performance Matrix
Multiplication", ACM TOMS 34(3), 2008.
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
#include <cstdlib>
#include <cstring>

enum Inner { ijk, ikj, tile };
enum Pack { none, b, ab };

#define INNER ijk    // tune: ijk, ikj, tile
#define PARALLEL 0   // tune: 0, 1
#define PACK none    // tune: none, b, ab
#define BLOCK_M 0    // tune: 0, 24, 48, 96
#define BLOCK_N 0    // tune: 0, 192, 384
#define BLOCK_K 0    // tune: 0, 128, 256
#define MR 4         // tune: 2, 4, 6, 8, 12
#define NR 2         // tune: 1, 2, 3, 4
#define LANES 8      // tune: 4, 8, 16

// GCC lowers a vector to what the machine has; rows may start anywhere, so memory is read unaligned.
typedef float vec __attribute__((vector_size(4 * LANES)));
typedef vec memory_vec __attribute__((aligned(4), may_alias));

constexpr long WIDTH = NR * LANES;  // columns of a register tile

static inline long least(long x, long y) { return x < y ? x : y; }
static inline long up(long x, long step) { return (x + step - 1) / step * step; }
static inline float* buffer(long floats) { return (float*)aligned_alloc(64, up(floats * 4 + 64, 64)); }

// C (m x n) = A (m x k) B (k x n), or += when this is not the first K block. One function for each loop order.
static void block_ijk(const float* A, long lda, const float* B, long ldb, float* C, long ldc, long m, long n, long k,
                      bool first) {
  for (long i = 0; i < m; i++)
    for (long j = 0; j < n; j++) {
      float sum = 0;
      for (long p = 0; p < k; p++) sum += A[i * lda + p] * B[p * ldb + j];
      C[i * ldc + j] = first ? sum : C[i * ldc + j] + sum;
    }
}

static void block_ikj(const float* A, long lda, const float* B, long ldb, float* C, long ldc, long m, long n, long k,
                      bool first) {
  for (long i = 0; i < m; i++) {
    float* __restrict c = C + i * ldc;
    if (first) memset(c, 0, n * sizeof(float));
    for (long p = 0; p < k; p++) {
      const float x = A[i * lda + p];
      const float* __restrict row = B + p * ldb;
#pragma omp simd
      for (long j = 0; j < n; j++) c[j] += x * row[j];
    }
  }
}

// One register tile: B is k x WIDTH with row length ldb; entry (r, p) of A is A[r * row + p * step]. Rows past m
// repeat row m - 1 and are not stored, columns past n are not stored.
static void micro(const float* A, long row, long step, const float* B, long ldb, float* C, long ldc, long m, long n,
                  long k, bool first) {
  vec sum[MR][NR] = {};
  long offset[MR];
#pragma GCC unroll 32
  for (int r = 0; r < MR; r++) offset[r] = least(r, m - 1) * row;
  for (long p = 0; p < k; p++) {
    vec right[NR];
#pragma GCC unroll 32
    for (int v = 0; v < NR; v++) right[v] = *(const memory_vec*)(B + p * ldb + v * LANES);
#pragma GCC unroll 32
    for (int r = 0; r < MR; r++) {
      const float left = A[offset[r] + p * step];
#pragma GCC unroll 32
      for (int v = 0; v < NR; v++) sum[r][v] += left * right[v];
    }
  }
  float edge[MR][WIDTH];
#pragma GCC unroll 32
  for (int r = 0; r < MR; r++)
#pragma GCC unroll 32
    for (int v = 0; v < NR; v++) {
      const bool whole = m == MR && n == WIDTH;
      memory_vec* out = (memory_vec*)(whole ? C + r * ldc + v * LANES : &edge[r][v * LANES]);
      *out = first || !whole ? sum[r][v] : *out + sum[r][v];
    }
  if (m == MR && n == WIDTH) return;
  for (long r = 0; r < m; r++)
    for (long j = 0; j < n; j++) C[r * ldc + j] = first ? edge[r][j] : C[r * ldc + j] + edge[r][j];
}

// Rows of `width` floats from a k x n part of B, zeros where n is short.
static void pack_b(const float* B, long ldb, float* out, long n, long k, long width) {
  for (long p = 0; p < k; p++) {
    memcpy(out + p * width, B + p * ldb, n * sizeof(float));
    memset(out + p * width + n, 0, (width - n) * sizeof(float));
  }
}

// Tiles of MR rows, each k x MR, from an m x k part of A; short tiles repeat the last row.
static void pack_a(const float* A, long lda, float* out, long m, long k) {
  for (long i = 0; i < m; i += MR, out += k * MR)
    for (int r = 0; r < MR; r++) {
      const float* row = A + least(i + r, m - 1) * lda;
      for (long p = 0; p < k; p++) out[p * MR + r] = row[p];
    }
}

extern "C" void matmul(const float* A, const float* B, float* C, long M, long N, long K, int threads) {
  const int team = PARALLEL ? threads : 1;
  const long mc = BLOCK_M ? BLOCK_M : up((M + team - 1) / team, MR);
  const long nc = BLOCK_N ? least(BLOCK_N, N) : N;
  const long kc = BLOCK_K ? least(BLOCK_K, K) : K;
  // Columns handled together inside a block: narrow strips where B is read down its columns, all of them where it is
  // read along its rows or where it was not copied into strips.
  const long width = INNER == tile || (INNER == ijk && PACK != none) ? WIDTH : nc;
  float* packed_b = PACK != none ? buffer(up(nc, width) * kc) : nullptr;
  if (K == 0) memset(C, 0, M * N * sizeof(float));
#pragma omp parallel num_threads(team) if (team > 1)
  {
    float* packed_a = PACK == ab && INNER == tile ? buffer(up(least(mc, M), MR) * kc) : nullptr;
    float* edge = INNER == tile && PACK == none ? buffer(width * kc) : nullptr;
    for (long jc = 0; jc < N; jc += nc)
      for (long pc = 0; pc < K; pc += kc) {
        const long n = least(nc, N - jc), k = least(kc, K - pc);
        if (PACK != none) {
#pragma omp for schedule(static)
          for (long j = 0; j < n; j += width)
            pack_b(B + pc * N + jc + j, N, packed_b + j * k, least(width, n - j), k, width);
        }
#pragma omp for schedule(dynamic)
        for (long ic = 0; ic < M; ic += mc) {
          const long m = least(mc, M - ic);
          const float* a = A + ic * K + pc;
          if (packed_a) pack_a(a, K, packed_a, m, k);
          for (long j = 0; j < n; j += width) {
            const long w = least(width, n - j);
            const float* right = PACK != none ? packed_b + j * k : B + pc * N + jc + j;
            long ldb = PACK != none ? width : N;
            float* c = C + ic * N + jc + j;
            if (INNER == ijk) block_ijk(a, K, right, ldb, c, N, m, w, k, pc == 0);
            if (INNER == ikj) block_ikj(a, K, right, ldb, c, N, m, w, k, pc == 0);
            if (INNER == tile) {
              if (edge && w < width) {  // a short strip is read as whole vectors, so it is always packed
                pack_b(right, ldb, edge, w, k, width);
                right = edge;
                ldb = width;
              }
              for (long i = 0; i < m; i += MR)
                micro(packed_a ? packed_a + i * k : a + i * K, packed_a ? 1 : K, packed_a ? MR : 1, right, ldb,
                      c + i * N, N, least(MR, m - i), w, k, pc == 0);
            }
          }
        }
      }
    free(packed_a);
    free(edge);
  }
  free(packed_b);
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


MATMUL = build("matmul").matmul
MATMUL.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 3 + [ctypes.c_int]


class ModelNew(nn.Module):
    """C = A @ B; A (M, K) and B (K, N) fp32 on the CPU."""

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        if A.dtype != torch.float32 or A.device.type != "cpu":
            raise TypeError(f"this kernel takes fp32 on the CPU, not {A.dtype} on {A.device}")
        A, B = A.contiguous(), B.contiguous()
        (M, K), N = A.shape, B.shape[1]
        C = torch.empty(M, N)
        MATMUL(A.data_ptr(), B.data_ptr(), C.data_ptr(), M, N, K, torch.get_num_threads())
        return C
