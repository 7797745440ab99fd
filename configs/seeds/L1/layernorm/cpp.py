"""L1/layernorm in C++: each sample normalised over all its other dimensions, then scaled and shifted, in fp32.

The declared values are the naive kernel: three scalar passes. What the tunables do:

- ``STATISTICS``: ``two_pass`` reads a row once for the mean and once for the variance. The others read it once:
  ``shifted`` sums x - x[0] and its square (the shift keeps the difference of the two from cancelling), ``chunked`` takes
  mean and variance of a chunk that stays in the first-level cache and merges the chunks.
- ``LANES``: floats a vector; 1 leaves it to the compiler. ``UNROLL``: vectors in flight with accumulators of their own.
- ``REVERSE``: write the result from the end, whose input is still in the cache.
- ``FOLD``: (x - mean) * rstd as one multiply-add, x * rstd - mean * rstd.
- ``STREAM``: write past the caches (non-temporal stores). ``PREFETCH``: ask for the input this many floats ahead.
- ``HUGE_PAGES``: ask the system for large pages under the result, which is fresh memory and costs a fault a page.
- ``PARALLEL``: share the rows out to torch's number of threads.

Chunks are merged as in T. Chan, G. Golub and R. LeVeque, "Updating formulae and a pairwise algorithm for computing
sample variances", Stanford STAN-CS-79-773, 1979. Totals over chunks are doubles, so long rows lose nothing.
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
#ifdef __linux__
#include <sys/mman.h>
#endif

enum Statistics { two_pass, shifted, chunked };

#define PARALLEL 0           // tune: 0, 1
#define STATISTICS two_pass  // tune: two_pass, shifted, chunked
#define LANES 1              // tune: 1, 4, 8, 16
#define UNROLL 1             // tune: 1, 2, 4, 8
#define REVERSE 0            // tune: 0, 1
#define FOLD 0               // tune: 0, 1
#define STREAM 0             // tune: 0, 1
#define PREFETCH 0           // tune: 0, 512
#define HUGE_PAGES 0         // tune: 0, 1

constexpr long CHUNK = 4096;  // floats: 16 KB, half of a usual first-level cache

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

// Visit 0 .. n in steps of LANES: visit(index, accumulator, lanes); `lanes` is short for the last step only.
template <class Visit>
static inline void sweep(long n, Visit visit) {
  long j = 0;
  for (; j + UNROLL * LANES <= n; j += UNROLL * LANES)
#pragma GCC unroll 8
    for (int u = 0; u < UNROLL; u++) visit(j + u * LANES, u, LANES);
  for (; j < n; j += LANES) visit(j, 0, (int)least(LANES, n - j));
}

// Lanes that are not there read as `missing`.
static inline vec load(const float* from, int lanes, float missing = 0) {
  if (lanes == LANES) return *(const memory_vec*)from;
  float part[LANES];
  for (int l = 0; l < LANES; l++) part[l] = l < lanes ? from[l] : missing;
  return bits<vec>(part);
}

static inline void store(float* to, vec value, int lanes) {
  if (lanes == LANES)
    *(memory_vec*)to = value;
  else
    memcpy(to, &value, lanes * sizeof(float));
}

// Past the caches where the machine can and the address is aligned, else as usual.
static inline void stream(float* to, vec value, int lanes) {
  if (lanes == LANES && (uintptr_t)to % sizeof(vec) == 0) {
#if LANES == 16 && defined(__AVX512F__)
    return __builtin_ia32_movntps512(to, value);
#elif LANES == 8 && defined(__AVX__)
    return __builtin_ia32_movntps256(to, value);
#elif LANES == 4 && defined(__SSE__)
    return __builtin_ia32_movntps(to, value);
#endif
  }
  store(to, value, lanes);
}

static inline void finish_streaming() {
#ifdef __SSE__
  if (STREAM) __builtin_ia32_sfence();
#endif
}

static inline double total(const vec (&sums)[UNROLL]) {
  double sum = 0;
  for (int u = 0; u < UNROLL; u++) {
    float part[LANES];
    memcpy(part, &sums[u], sizeof part);
    for (int l = 0; l < LANES; l++) sum += part[l];
  }
  return sum;
}

static inline void prefetch(const float* x) {
  if (PREFETCH) __builtin_prefetch((const void*)((uintptr_t)x + PREFETCH * sizeof(float)));
}

static inline double chunk_sum(const float* x, long n) {
  vec sum[UNROLL] = {};
  sweep(n, [&](long j, int u, int lanes) __attribute__((always_inline)) {
    prefetch(x + j);
    sum[u] += load(x + j, lanes);
  });
  return total(sum);
}

static inline double chunk_squares(const float* x, long n, float centre) {
  vec squares[UNROLL] = {};
  sweep(n, [&](long j, int u, int lanes) __attribute__((always_inline)) {
    const vec away = load(x + j, lanes, centre) - centre;
    squares[u] += away * away;
  });
  return total(squares);
}

static void statistics(const float* x, long n, double* mean, double* variance) {
  double sum = 0, squares = 0;
  if (STATISTICS == two_pass) {
    for (long c = 0; c < n; c += CHUNK) sum += chunk_sum(x + c, least(CHUNK, n - c));
    *mean = sum / n;
    for (long c = 0; c < n; c += CHUNK) squares += chunk_squares(x + c, least(CHUNK, n - c), (float)*mean);
    *variance = squares / n;
  } else if (STATISTICS == shifted) {
    const float shift = x[0];
    for (long c = 0; c < n; c += CHUNK) {
      vec part[UNROLL] = {}, part_squares[UNROLL] = {};
      sweep(least(CHUNK, n - c), [&](long j, int u, int lanes) __attribute__((always_inline)) {
        prefetch(x + c + j);
        const vec away = load(x + c + j, lanes, shift) - shift;
        part[u] += away;
        part_squares[u] += away * away;
      });
      sum += total(part);
      squares += total(part_squares);
    }
    *mean = shift + sum / n;
    *variance = (squares - sum * sum / n) / n;
  } else {
    double middle = 0;
    for (long c = 0; c < n; c += CHUNK) {
      const long m = least(CHUNK, n - c);
      const float centre = (float)(chunk_sum(x + c, m) / m);
      const double apart = centre - middle;
      squares += chunk_squares(x + c, m, centre) + apart * apart * c * m / (c + m);
      middle += apart * m / (c + m);
    }
    *mean = middle;
    *variance = squares / n;
  }
}

static void normalise_row(const float* __restrict x, const float* __restrict weight, const float* __restrict bias,
                          float* __restrict out, long n, double eps) {
  double mean, variance;
  statistics(x, n, &mean, &variance);
  const float centre = (float)mean, rstd = (float)(1.0 / __builtin_sqrt(variance + eps)), moved = -centre * rstd;
  const long chunks = (n + CHUNK - 1) / CHUNK;
  for (long c = 0; c < chunks; c++) {
    const long start = (REVERSE ? chunks - 1 - c : c) * CHUNK;
    sweep(least(CHUNK, n - start), [&](long j, int, int lanes) __attribute__((always_inline)) {
      j += start;
      const vec value = load(x + j, lanes);
      const vec normal = FOLD ? value * rstd + moved : (value - centre) * rstd;
      const vec result = normal * load(weight + j, lanes) + load(bias + j, lanes);
      if (STREAM)
        stream(out + j, result, lanes);
      else
        store(out + j, result, lanes);
    });
  }
}

// Ask for large pages before the first write to [to, to + bytes): fresh memory costs a page fault for each page.
static inline void ask_for_huge_pages(float* to, long bytes) {
#ifdef MADV_HUGEPAGE
  constexpr uintptr_t PAGE = 4096;  // madvise wants a multiple of the smallest page; elsewhere it refuses, no harm done
  const uintptr_t start = ((uintptr_t)to + PAGE - 1) / PAGE * PAGE, end = ((uintptr_t)to + bytes) / PAGE * PAGE;
  if (HUGE_PAGES && start < end) madvise((void*)start, end - start, MADV_HUGEPAGE);
#endif
}

extern "C" void layernorm(const float* x, const float* weight, const float* bias, float* out, long rows, long n,
                          double eps, int threads) {
  const int team = PARALLEL ? threads : 1;
  ask_for_huge_pages(out, rows * n * sizeof(float));
#pragma omp parallel num_threads(team) if (team > 1)
  {
#pragma omp for schedule(static)
    for (long i = 0; i < rows; i++) normalise_row(x + i * n, weight, bias, out + i * n, n, eps);
    finish_streaming();
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


LAYERNORM = build("layernorm").layernorm
LAYERNORM.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_long] * 2 + [ctypes.c_double, ctypes.c_int]


class ModelNew(nn.Module):
    """Layer norm of x (BATCH, *normalized_shape), fp32 on the CPU; weight and bias are those of `nn.LayerNorm`."""

    def __init__(self, normalized_shape: tuple[int, ...]):
        super().__init__()
        self.norm = nn.LayerNorm(normalized_shape)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dtype != torch.float32 or x.device.type != "cpu":
            raise TypeError(f"this kernel takes fp32 on the CPU, not {x.dtype} on {x.device}")
        x, weight, bias = x.contiguous(), self.norm.weight.contiguous(), self.norm.bias.contiguous()
        n = weight.numel()
        out = torch.empty(x.shape)
        LAYERNORM(
            x.data_ptr(),
            weight.data_ptr(),
            bias.data_ptr(),
            out.data_ptr(),
            x.numel() // n,
            n,
            self.norm.eps,
            torch.get_num_threads(),
        )
        return out
