"""L1/sum_reduce in C++: sum over one dimension, kept as a dimension of 1, in fp32.

The tensor is seen as (outer, n, inner) and summed over n. The declared values are the naive kernel: for each entry of
the output, walk down its column with a stride of `inner`. What the tunables do:

- ``ORDER``: ``columns`` keeps UNROLL vectors of columns in registers and walks down; ``rows`` reads the rows as they lie
  in memory and adds them to a row of partial sums in the cache.
- ``LANES``: floats a vector; 1 leaves it to the compiler. ``UNROLL``: vectors handled side by side.
- ``ROWS``: rows added to one another before they meet the partial sums (fewer loads and stores, shorter chains).
- ``STRIP``: columns of a strip; 0 takes all. A strip is also the task of a thread, beside the outer index.
- ``PREFETCH``: ask for the input this many rows ahead.
- ``PARALLEL``: share the tasks out to torch's number of threads.

Every order sums groups of 64 rows first and the groups afterwards, so rounding errors grow with the square root of
n / 64 + 64, not of n.
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
#include <string.h>

enum Order { columns, rows };

#define PARALLEL 0     // tune: 0, 1
#define ORDER columns  // tune: columns, rows
#define LANES 1        // tune: 1, 4, 8, 16
#define UNROLL 1       // tune: 1, 2, 4, 8
#define ROWS 1         // tune: 1, 2, 4, 8
#define STRIP 0        // tune: 0, 128, 256
#define PREFETCH 0     // tune: 0, 8, 32

constexpr long GROUP = 64;        // rows summed before they are added to the total
constexpr long WIDEST = 1 << 12;  // columns of a strip at most: partial sums of 16 KB stay in the first-level cache

#if LANES == 1
typedef float vec, memory_vec;
#else  // GCC lowers a vector to what the machine has; rows may start anywhere, so memory is read unaligned
typedef float vec __attribute__((vector_size(4 * LANES)));
typedef vec memory_vec __attribute__((aligned(4), may_alias));
#endif

static inline long least(long x, long y) { return x < y ? x : y; }

template <class To, class From>
static inline To bits(const From& value) {
  To same;
  memcpy(&same, &value, sizeof same);
  return same;
}

static inline vec load(const float* from, int lanes) {
  if (lanes == LANES) return *(const memory_vec*)from;
  float part[LANES] = {};
  memcpy(part, from, lanes * sizeof(float));
  return bits<vec>(part);
}

static inline void store(float* to, vec value, int lanes) {
  if (lanes == LANES)
    *(memory_vec*)to = value;
  else
    memcpy(to, &value, lanes * sizeof(float));
}

// Visit 0 .. width in steps of LANES, `lanes` short for the last step only.
template <class Visit>
static inline void sweep(long width, Visit visit) {
  long j = 0;
  for (; j + UNROLL * LANES <= width; j += UNROLL * LANES)
#pragma GCC unroll 8
    for (int u = 0; u < UNROLL; u++) visit(j + u * LANES, LANES);
  for (; j < width; j += LANES) visit(j, (int)least(LANES, width - j));
}

// Sum of `count` <= ROWS rows at one place. `count` is a constant where it is ROWS.
static inline vec add_rows(const float* x, long inner, int count, int lanes) {
  if (PREFETCH) __builtin_prefetch((const void*)((uintptr_t)x + PREFETCH * inner * sizeof(float)));
  vec sum = load(x, lanes);
#pragma GCC unroll 8
  for (int r = 1; r < count; r++) sum += load(x + r * inner, lanes);
  return sum;
}

// VECTORS neighbouring vectors of columns, walked down with their sums in registers.
template <int VECTORS>
static inline void walk_down(const float* x, float* out, long n, long inner, int lanes) {
  vec sum[VECTORS] = {};
  for (long start = 0; start < n; start += GROUP) {
    const long end = least(start + GROUP, n);
    vec part[VECTORS] = {};
    long i = start;
    for (; i + ROWS <= end; i += ROWS)
#pragma GCC unroll 8
      for (int v = 0; v < VECTORS; v++) part[v] += add_rows(x + i * inner + v * LANES, inner, ROWS, lanes);
    for (; i < end; i++)
      for (int v = 0; v < VECTORS; v++) part[v] += load(x + i * inner + v * LANES, lanes);
    for (int v = 0; v < VECTORS; v++) sum[v] += part[v];
  }
  for (int v = 0; v < VECTORS; v++) store(out + v * LANES, sum[v], lanes);
}

static void sum_by_columns(const float* x, float* out, long n, long inner, long width) {
  long j = 0;
  for (; j + UNROLL * LANES <= width; j += UNROLL * LANES) walk_down<UNROLL>(x + j, out + j, n, inner, LANES);
  for (; j < width; j += LANES) walk_down<1>(x + j, out + j, n, inner, (int)least(LANES, width - j));
}

static void sum_by_rows(const float* __restrict x, float* __restrict out, long n, long inner, long width) {
  float partial[WIDEST];
  memset(out, 0, width * sizeof(float));
  for (long start = 0; start < n; start += GROUP) {
    const long end = least(start + GROUP, n);
    memset(partial, 0, width * sizeof(float));
    long i = start;
    for (; i + ROWS <= end; i += ROWS)
      sweep(width, [&](long j, int lanes) __attribute__((always_inline)) {
        store(partial + j, load(partial + j, lanes) + add_rows(x + i * inner + j, inner, ROWS, lanes), lanes);
      });
    for (; i < end; i++)
      sweep(width, [&](long j, int lanes) __attribute__((always_inline)) {
        store(partial + j, load(partial + j, lanes) + load(x + i * inner + j, lanes), lanes);
      });
    sweep(width, [&](long j, int lanes) __attribute__((always_inline)) {
      store(out + j, load(out + j, lanes) + load(partial + j, lanes), lanes);
    });
  }
}

// The summed dimension is the last: each output is the sum of one contiguous run, in GROUP-sized pieces.
static float sum_run(const float* x, long n) {
  double sum = 0;
  for (long start = 0; start < n; start += GROUP * LANES) {
    const long end = least(start + GROUP * LANES, n);
    vec part = {};
    for (long j = start; j < end; j += LANES) part += load(x + j, (int)least(LANES, end - j));
    float lane[LANES];
    memcpy(lane, &part, sizeof lane);
    for (int l = 0; l < LANES; l++) sum += lane[l];
  }
  return (float)sum;
}

extern "C" void sum_reduce(const float* x, float* out, long outer, long n, long inner, int threads) {
  const int team = PARALLEL ? threads : 1;
  const long strip = least(STRIP ? STRIP : inner, WIDEST);
#pragma omp parallel for collapse(2) schedule(static) num_threads(team) if (team > 1)
  for (long o = 0; o < outer; o++)
    for (long j = 0; j < inner; j += strip) {
      const float* from = x + o * n * inner + j;
      float* to = out + o * inner + j;
      const long width = least(strip, inner - j);
      if (inner == 1)
        *to = sum_run(from, n);
      else if (ORDER == columns)
        sum_by_columns(from, to, n, inner, width);
      else
        sum_by_rows(from, to, n, inner, width);
    }
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


SUM_REDUCE = build("sum_reduce").sum_reduce
SUM_REDUCE.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_long] * 3 + [ctypes.c_int]


class ModelNew(nn.Module):
    """Sum of x over dimension `dim`, which stays as 1; fp32 on the CPU."""

    def __init__(self, dim: int):
        super().__init__()
        self.dim = dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dtype != torch.float32 or x.device.type != "cpu":
            raise TypeError(f"this kernel takes fp32 on the CPU, not {x.dtype} on {x.device}")
        x = x.contiguous()
        dim = self.dim % x.dim()
        before, n, after = x.shape[:dim], x.shape[dim], x.shape[dim + 1 :]
        out = torch.empty(*before, 1, *after)
        SUM_REDUCE(x.data_ptr(), out.data_ptr(), before.numel(), n, after.numel(), torch.get_num_threads())
        return out
