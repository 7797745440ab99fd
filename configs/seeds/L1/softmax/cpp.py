"""L1/softmax in C++: softmax of every row in fp32, from a scalar three-pass loop up to vectors with their own exp.

The declared values are the naive kernel. What the tunables do:

- ``PASSES``: ``three`` finds the maximum, stores the exponentials while it sums them, then scales them; ``online``
  finds maximum and sum in one pass and computes the exponentials again when it writes (one pass over memory less,
  more arithmetic).
- ``EXP``: the C library's expf, lane by lane, or a polynomial on whole vectors (to fp32 rounding).
- ``LANES``: floats a vector; 1 leaves it to the compiler. ``UNROLL``: vectors in flight with accumulators of their own.
- ``STREAM``: collect the exponentials in a scratch row and write the result past the caches (non-temporal stores).
- ``PREFETCH``: ask for the next row while this one is being exponentiated.
- ``RECIPROCAL``: one division a row instead of one for each entry.
- ``PARALLEL``: share the rows out to torch's number of threads.

``online`` follows M. Milakov and N. Gimelshein, "Online normalizer calculation for softmax", arXiv:1805.02867. The
polynomial is our own minimax fit of (exp(r) - 1 - r) / r^2 on |r| <= ln(2)/2.
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
#include <float.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum Passes { three, online };
enum Exp { libm, poly };

#define PARALLEL 0    // tune: 0, 1
#define PASSES three  // tune: three, online
#define EXP libm      // tune: libm, poly
#define LANES 1       // tune: 1, 4, 8, 16
#define UNROLL 1      // tune: 1, 2, 4
#define STREAM 0      // tune: 0, 1
#define PREFETCH 0    // tune: 0, 1
#define RECIPROCAL 0  // tune: 0, 1

#if LANES == 1
typedef float vec, memory_vec;
typedef uint32_t uvec;
#else  // GCC lowers a vector to what the machine has; rows may start anywhere, so memory is read unaligned
typedef float vec __attribute__((vector_size(4 * LANES)));
typedef uint32_t uvec __attribute__((vector_size(4 * LANES)));
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

// Lanes that are not there read as -inf, whose exponential is 0.
static inline vec load(const float* from, int lanes) {
  if (lanes == LANES) return *(const memory_vec*)from;
  float part[LANES];
  for (int l = 0; l < LANES; l++) part[l] = l < lanes ? from[l] : -__builtin_inff();
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

static inline vec larger(vec x, vec y) { return x > y ? x : y; }

static inline float lane_max(vec value) {
  float part[LANES], best = -FLT_MAX;
  memcpy(part, &value, sizeof part);
  for (int l = 0; l < LANES; l++) best = part[l] > best ? part[l] : best;
  return best;
}

static inline float lane_sum(vec value) {
  float part[LANES], sum = 0;
  memcpy(part, &value, sizeof part);
  for (int l = 0; l < LANES; l++) sum += part[l];
  return sum;
}

// exp(x) for x <= 0, so that nothing overflows.
static inline vec exponential(vec x) {
  if (EXP == libm) {
    float part[LANES];
    memcpy(part, &x, sizeof part);
    for (int l = 0; l < LANES; l++) part[l] = __builtin_expf(part[l]);
    return bits<vec>(part);
  }
  // exp(x) = 2^n exp(r). Adding 1.5 * 2^23 rounds to a whole number and leaves it in the low bits; ln(2) is split
  // into 355/512 and the rest, so that n * ln(2) is subtracted without loss (Cody and Waite).
  const vec shifted = x * 1.44269504f + 12582912.0f;
  const vec n = shifted - 12582912.0f;
  const vec r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  vec p = r * 1.38144667e-3f + 8.36878043e-3f;
  p = p * r + 4.16683942e-2f;
  p = p * r + 1.66665201e-1f;
  p = p * r + 4.99999934e-1f;
  p = p * r * r + r + 1.0f;
  const uvec power = (bits<uvec>(shifted) + 127u) << 23;
  return x < -87.0f ? vec{} : p * bits<vec>(power);  // below e^-87 the power of two leaves the normal range
}

static void softmax_row(const float* __restrict x, float* __restrict out, float* __restrict scratch, long n) {
  vec top[UNROLL], sum[UNROLL] = {};
  for (int u = 0; u < UNROLL; u++) top[u] = vec{} - FLT_MAX;
  float maximum, total = 0;
  if (PASSES == online) {
    sweep(n, [&](long j, int u, int lanes) __attribute__((always_inline)) {
      const vec value = load(x + j, lanes), higher = larger(value, top[u]);
      sum[u] = sum[u] * exponential(top[u] - higher) + exponential(value - higher);
      top[u] = higher;
    });
    vec highest = top[0];
    for (int u = 1; u < UNROLL; u++) highest = larger(highest, top[u]);
    maximum = lane_max(highest);
    for (int u = 0; u < UNROLL; u++) total += lane_sum(sum[u] * exponential(top[u] - maximum));
  } else {
    sweep(n, [&](long j, int u, int lanes) __attribute__((always_inline)) { top[u] = larger(load(x + j, lanes), top[u]); });
    vec highest = top[0];
    for (int u = 1; u < UNROLL; u++) highest = larger(highest, top[u]);
    maximum = lane_max(highest);
    float* kept = STREAM ? scratch : out;
    sweep(n, [&](long j, int u, int lanes) __attribute__((always_inline)) {
      if (PREFETCH) __builtin_prefetch((const void*)((uintptr_t)(x + j) + n * sizeof(float)));
      const vec value = exponential(load(x + j, lanes) - maximum);
      store(kept + j, value, lanes);
      sum[u] += value;
    });
    for (int u = 0; u < UNROLL; u++) total += lane_sum(sum[u]);
  }
  const float scale = 1.0f / total;
  sweep(n, [&](long j, int, int lanes) __attribute__((always_inline)) {
    vec value;
    if (PASSES == online) {
      if (PREFETCH) __builtin_prefetch((const void*)((uintptr_t)(x + j) + n * sizeof(float)));
      value = exponential(load(x + j, lanes) - maximum);
    } else {
      value = load((STREAM ? scratch : out) + j, lanes);
    }
    value = RECIPROCAL ? value * scale : value / total;
    if (STREAM)
      stream(out + j, value, lanes);
    else
      store(out + j, value, lanes);
  });
}

extern "C" void softmax(const float* x, float* out, long rows, long columns, int threads) {
  const int team = PARALLEL ? threads : 1;
#pragma omp parallel num_threads(team) if (team > 1)
  {
    float* scratch = STREAM && PASSES == three ? (float*)malloc(columns * sizeof(float)) : nullptr;
#pragma omp for schedule(static)
    for (long i = 0; i < rows; i++) softmax_row(x + i * columns, out + i * columns, scratch, columns);
    finish_streaming();
    free(scratch);
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


SOFTMAX = build("softmax").softmax
SOFTMAX.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_long] * 2 + [ctypes.c_int]


class ModelNew(nn.Module):
    """Softmax over dimension 1 of x (ROWS, COLUMNS), fp32 on the CPU."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dtype != torch.float32 or x.device.type != "cpu":
            raise TypeError(f"this kernel takes fp32 on the CPU, not {x.dtype} on {x.device}")
        x = x.contiguous()
        rows, columns = x.shape
        out = torch.empty(rows, columns)
        SOFTMAX(x.data_ptr(), out.data_ptr(), rows, columns, torch.get_num_threads())
        return out
