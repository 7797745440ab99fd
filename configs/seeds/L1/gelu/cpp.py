"""L1/gelu in C++: exact GELU, x * Phi(x) with the normal distribution function Phi, in fp32.

The declared values are the naive kernel: one scalar erff for each entry. What the tunables do:

- ``PHI``: ``libm`` is 0.5 * (1 + erff(x / sqrt 2)), lane by lane. ``horner`` and ``estrin`` evaluate one polynomial for
  Phi on whole vectors, no exponential and no division: Horner's rule with the fewest operations, Estrin's with a
  shorter chain of dependent ones.
- ``LANES``: floats a vector; 1 leaves it to the compiler. ``UNROLL``: independent vectors in flight.
- ``STREAM``: write past the caches (non-temporal stores), so that lines of the output are not read first.
- ``PREFETCH``: ask for the input this many floats ahead.
- ``BLOCK``: floats handed to a thread at a time; 0 gives every thread one equal share.
- ``PARALLEL``: share the blocks out to torch's number of threads.

The polynomial is our own minimax fit: (Phi(x) - 1/2) / x in u = 2 x^2 / 25 - 1, so that u runs over -1 .. 1 and fp32
coefficients suffice; it is off by 3e-8 at most, and beyond |x| = 5 Phi is 0 or 1 to 3e-7.
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

enum Phi { libm, horner, estrin };

#define PARALLEL 0  // tune: 0, 1
#define PHI libm    // tune: libm, horner, estrin
#define LANES 1     // tune: 1, 4, 8, 16
#define UNROLL 1    // tune: 1, 2, 4
#define STREAM 0    // tune: 0, 1
#define PREFETCH 0  // tune: 0, 256, 1024
#define BLOCK 0     // tune: 0, 4096, 65536

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

static inline vec normal_cdf(vec x) {
  if (PHI == libm) {
    float part[LANES];
    memcpy(part, &x, sizeof part);
    for (int l = 0; l < LANES; l++) part[l] = 0.5f * (1.0f + __builtin_erff(part[l] * 0.707106781f));
    return bits<vec>(part);
  }
  // Coefficients of u^0 .. u^13.
  static const float c[] = {0.141363814f,      -0.0702967867f,   0.0515184402f,    -0.0404270627f,  0.0314699598f,
                            -0.0234041624f,    0.0162687264f,    -0.0106614809f,   0.00669658929f,  -0.00358744315f,
                            0.00144298247f,    -0.00084074738f,  0.000710507913f,  -0.000253398728f};
  const vec u = x * x * 0.08f - 1.0f;
  vec p;
  if (PHI == horner) {
    p = vec{} + c[13];
#pragma GCC unroll 16
    for (int k = 12; k >= 0; k--) p = p * u + c[k];
  } else {
    const vec u2 = u * u, u4 = u2 * u2, u8 = u4 * u4;
    const vec low = (c[0] + c[1] * u) + (c[2] + c[3] * u) * u2;
    const vec middle = (c[4] + c[5] * u) + (c[6] + c[7] * u) * u2;
    const vec high = (c[8] + c[9] * u) + (c[10] + c[11] * u) * u2;
    p = (low + middle * u4) + (high + (c[12] + c[13] * u) * u4) * u8;
  }
  const vec tail = x > 0.0f ? vec{} + 1.0f : vec{};
  return x * x < 25.0f ? x * p + 0.5f : tail;
}

static void gelu_block(const float* __restrict x, float* __restrict out, long n) {
  const auto visit = [&](long j, int lanes) __attribute__((always_inline)) {
    if (PREFETCH) __builtin_prefetch((const void*)((uintptr_t)(x + j) + PREFETCH * sizeof(float)));
    const vec value = load(x + j, lanes), result = value * normal_cdf(value);
    if (STREAM)
      stream(out + j, result, lanes);
    else
      store(out + j, result, lanes);
  };
  long j = 0;
  for (; j + UNROLL * LANES <= n; j += UNROLL * LANES)
#pragma GCC unroll 8
    for (int u = 0; u < UNROLL; u++) visit(j + u * LANES, LANES);
  for (; j < n; j += LANES) visit(j, (int)least(LANES, n - j));
}

extern "C" void gelu(const float* x, float* out, long n, int threads) {
  const int team = PARALLEL ? threads : 1;
  // A share is a whole number of cache lines, so that no line is written by two threads.
  const long block = BLOCK ? BLOCK : ((n + team - 1) / team + 15) / 16 * 16;
#pragma omp parallel num_threads(team) if (team > 1)
  {
#pragma omp for schedule(static)
    for (long start = 0; start < n; start += block) gelu_block(x + start, out + start, least(block, n - start));
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


GELU = build("gelu").gelu
GELU.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_long, ctypes.c_int]


class ModelNew(nn.Module):
    """Exact GELU of x, any shape, fp32 on the CPU."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dtype != torch.float32 or x.device.type != "cpu":
            raise TypeError(f"this kernel takes fp32 on the CPU, not {x.dtype} on {x.device}")
        x = x.contiguous()
        out = torch.empty(x.shape)
        GELU(x.data_ptr(), out.data_ptr(), x.numel(), torch.get_num_threads())
        return out
