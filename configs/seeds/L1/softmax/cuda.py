"""L1/softmax in CUDA C++: one block a row; three passes over the row at first (maximum, sum, result).

The declared values are the plain kernel. What the tunables do:

- ``THREADS``: threads a block. Fewer rows in flight leave more of each row in L2 for the last pass.
- ``VEC``: floats in one access, up to 16 bytes; the launcher takes 1 where rows do not start at such addresses.
- ``UNROLL``: independent accesses in flight in each thread.
- ``ONLINE``: maximum and sum in one pass (M. Milakov and N. Gimelshein, "Online normalizer calculation for softmax",
  arXiv:1805.02867).
- ``CACHE_KB``: keep the start of the row in this much shared memory, so that only the rest is read again.
- ``REVERSE``: walk the last pass backwards, because the end of the row was read last and is still in L2.
- ``STREAM``: results, and the last read of the row, are the first to leave the caches.
- ``FAST_EXP``: the hardware's exponential (2 ulp and a little more for large arguments).
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
#include <cstdint>

#define THREADS 256  // tune: 128, 256, 512, 1024
#define VEC 1        // tune: 1, 2, 4
#define UNROLL 2     // tune: 1, 2, 4, 8
#define ONLINE 0     // tune: 0, 1
#define CACHE_KB 0   // tune: 0, 48, 96
#define REVERSE 0    // tune: 0, 1
#define STREAM 0     // tune: 0, 1
#define FAST_EXP 0   // tune: 0, 1

constexpr float LOWEST = -__builtin_huge_valf();

// V floats that move in one access.
template <int V> struct Pack;
template <> struct Pack<1> { typedef float type; };
template <> struct Pack<2> { typedef float2 type; };
template <> struct Pack<4> { typedef float4 type; };

__device__ __forceinline__ float exponential(float x) { return FAST_EXP ? __expf(x) : expf(x); }

// exp(x - maximum), and 0 where nothing was seen yet.
__device__ __forceinline__ float weight(float x, float maximum) { return x == LOWEST ? 0.0f : exponential(x - maximum); }

struct Stats { float maximum, sum; };

__device__ __forceinline__ Stats merge(Stats a, Stats b) {
  const float maximum = fmaxf(a.maximum, b.maximum);
  return {maximum, a.sum * weight(a.maximum, maximum) + b.sum * weight(b.maximum, maximum)};
}

// What all threads of the block have found together, for all of them.
__device__ Stats over_block(Stats mine) {
  __shared__ Stats of_warp[32], of_block;
#pragma unroll
  for (int step = 16; step; step /= 2)
    mine = merge(mine, {__shfl_xor_sync(~0u, mine.maximum, step), __shfl_xor_sync(~0u, mine.sum, step)});
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = mine;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int warp = 1; warp < THREADS / 32; warp++) mine = merge(mine, of_warp[warp]);
    of_block = mine;
  }
  __syncthreads();
  return of_block;
}

// One walk of a block over its row: `use` gets the packs of one step and how many of them are there.
template <int V> struct Row {
  typedef typename Pack<V>::type pack;
  const float* x;
  float* kept;  // the first `cached` packs, in shared memory; each thread reads what it wrote itself
  int packs, cached;

  template <bool FIRST, bool LAST, typename Use> __device__ __forceinline__ void walk(Use use) const {
    const int steps = (packs + THREADS * UNROLL - 1) / (THREADS * UNROLL);
    for (int step = 0; step < steps; step++) {
      const int first = (LAST && REVERSE ? steps - 1 - step : step) * THREADS * UNROLL + threadIdx.x;
      alignas(16) float v[UNROLL][V];
#pragma unroll
      for (int u = 0; u < UNROLL; u++) {
        const int i = first + u * THREADS;
        if (CACHE_KB && !FIRST && i < cached) *(pack*)v[u] = ((const pack*)kept)[i];
        else if (i < packs) *(pack*)v[u] = LAST && STREAM ? __ldcs((const pack*)x + i) : ((const pack*)x)[i];
        else
#pragma unroll
          for (int k = 0; k < V; k++) v[u][k] = LOWEST;
      }
      if (CACHE_KB && FIRST)
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
          if (first + u * THREADS < cached) ((pack*)kept)[first + u * THREADS] = *(const pack*)v[u];
      use(v, first);
    }
  }
};

template <int V>
__global__ void __launch_bounds__(THREADS) softmax_kernel(const float* x, float* y, int columns, int cached) {
  extern __shared__ float4 shared[];
  const Row<V> row{x + (int64_t)blockIdx.x * columns, (float*)shared, columns / V, cached};
  typedef typename Pack<V>::type pack;
  y += (int64_t)blockIdx.x * columns;

  Stats mine{LOWEST, 0};
  row.template walk<true, false>([&](float (&v)[UNROLL][V], int) {
    float maximum = mine.maximum;
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
#pragma unroll
      for (int k = 0; k < V; k++) maximum = fmaxf(maximum, v[u][k]);
    if (ONLINE && maximum != LOWEST) {
      float sum = 0;
#pragma unroll
      for (int u = 0; u < UNROLL; u++)
#pragma unroll
        for (int k = 0; k < V; k++) sum += exponential(v[u][k] - maximum);
      if (maximum != mine.maximum) mine.sum *= weight(mine.maximum, maximum);  // seldom, after the first few steps
      mine.sum += sum;
    }
    mine.maximum = maximum;
  });
  Stats all = over_block(mine);
  if (!ONLINE) {
    mine = {all.maximum, 0};
    row.template walk<false, false>([&](float (&v)[UNROLL][V], int) {
#pragma unroll
      for (int u = 0; u < UNROLL; u++)
#pragma unroll
        for (int k = 0; k < V; k++) mine.sum += exponential(v[u][k] - mine.maximum);
    });
    all = over_block(mine);
  }
  const float scale = 1.0f / all.sum;
  row.template walk<false, true>([&](float (&v)[UNROLL][V], int first) {
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      const int i = first + u * THREADS;
      if (i >= row.packs) continue;
#pragma unroll
      for (int k = 0; k < V; k++) v[u][k] = exponential(v[u][k] - all.maximum) * scale;
      if (STREAM) __stcs((pack*)y + i, *(const pack*)v[u]);
      else ((pack*)y)[i] = *(const pack*)v[u];
    }
  });
}

template <int V> cudaError_t launch(const float* x, float* y, int64_t rows, int columns, cudaStream_t stream) {
  // 1 KB is the system's share of a block's shared memory on sm_90, and over_block needs a little.
  int device = 0, most = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  int bytes = CACHE_KB * 1024 < most - 2048 ? CACHE_KB * 1024 : most - 2048;
  if (bytes > columns / V * V * 4) bytes = columns / V * V * 4;
  if (bytes > 40 * 1024) {
    const cudaError_t status = cudaFuncSetAttribute(softmax_kernel<V>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (status != cudaSuccess) return status;
  }
  softmax_kernel<V><<<(unsigned)rows, THREADS, bytes, stream>>>(x, y, columns, bytes / (4 * V));
  return cudaGetLastError();
}

extern "C" int softmax_launch(const float* x, float* y, int64_t rows, int columns, cudaStream_t stream) {
  const bool aligned = ((uintptr_t)x | (uintptr_t)y) % (4 * VEC) == 0 && columns % VEC == 0;
  return aligned ? launch<VEC>(x, y, rows, columns, stream) : launch<1>(x, y, rows, columns, stream);
}

extern "C" const char* describe(int status) { return cudaGetErrorString((cudaError_t)status); }
"""


def build(name: str) -> ctypes.CDLL:
    """Compile SOURCE for this GPU in torch's extension folder and load it; the hash in the path keeps every variant apart."""
    capability = "{}{}".format(*torch.cuda.get_device_capability())
    flags = ["-O3", f"-gencode=arch=compute_{capability},code=sm_{capability}"]
    key = hashlib.sha256("\n".join([SOURCE, *flags]).encode()).hexdigest()[:16]
    root = os.environ.get("TORCH_EXTENSIONS_DIR") or cpp_extension.get_default_build_root()
    folder = Path(root) / f"{name}_{key}"
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / f"{name}.cu").exists():
        with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".draft", delete=False) as draft:
            draft.write(SOURCE)
        os.replace(draft.name, folder / f"{name}.cu")
    cpp_extension.load(
        name=f"{name}_{key}",
        sources=[str(folder / f"{name}.cu")],
        extra_cuda_cflags=flags,
        build_directory=str(folder),
        is_python_module=False,
        with_cuda=True,
        verbose=False,
    )
    library = ctypes.CDLL(str(folder / f"{name}_{key}.so"))
    library.describe.restype = ctypes.c_char_p
    return library


LIBRARY = build("softmax")
SOFTMAX = LIBRARY.softmax_launch
SOFTMAX.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_int64, ctypes.c_int, ctypes.c_void_p]


class ModelNew(nn.Module):
    """Softmax over dim 1; x (ROWS, COLUMNS) fp32 on a CUDA device."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dtype != torch.float32 or x.device.type != "cuda" or x.dim() != 2:
            raise TypeError(f"this kernel takes a matrix in fp32 on a CUDA device, not {x.dtype} on {x.device}")
        x = x.contiguous()
        y = torch.empty_like(x)
        if x.numel():
            stream = torch.cuda.current_stream().cuda_stream
            status = SOFTMAX(x.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1], stream)
            if status:
                raise RuntimeError(f"softmax: {LIBRARY.describe(status).decode()}")
        return y
