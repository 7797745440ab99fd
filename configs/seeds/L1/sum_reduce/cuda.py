"""L1/sum_reduce in CUDA C++: sums down the columns of (outer, reduced, inner), each thread along its own columns.

The declared values are the plain kernel. What the tunables do:

- ``LANES``, ``SLICES``: a block is LANES threads across the columns, SLICES shares of the rows deep.
- ``VEC``: columns of a thread, read in one access of up to 16 bytes; the launcher takes 1 where that is not aligned.
- ``UNROLL``: rows in flight in each thread.
- ``SPLIT``: blocks that share the rows of one column; a second kernel adds their partial sums in a fixed order.
- ``STREAM``: what is read once is the first to leave the caches.
- ``COLUMNS_FIRST``: neighbouring blocks take neighbouring columns, not the next share of the rows.

Sums are formed in two levels, GROUP rows and then the groups: one running fp32 sum over thousands of positive numbers
loses digits that count when the sums are compared with each other.
"""

import ctypes
import hashlib
import math
import os
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils import cpp_extension

SOURCE = r"""
#include <cstdint>

#define LANES 32         // tune: 32, 64, 128
#define SLICES 4         // tune: 2, 4, 8
#define VEC 1            // tune: 1, 2, 4
#define UNROLL 1         // tune: 1, 2, 4, 8
#define SPLIT 1          // tune: 1, 2, 4, 8
#define STREAM 0         // tune: 0, 1
#define COLUMNS_FIRST 1  // tune: 0, 1

constexpr int GROUP = 32;  // rows of the first level, about the square root of what a thread adds

// V floats that move in one access.
template <int V> struct Pack;
template <> struct Pack<1> { typedef float type; };
template <> struct Pack<2> { typedef float2 type; };
template <> struct Pack<4> { typedef float4 type; };

// UNROLL rows into `sum`; all loads are issued before the first use, which the compiler only does without conditions.
template <int V, bool WHOLE>
__device__ __forceinline__ void add_rows(float (&sum)[V], const float* at, int64_t inner, int64_t left) {
  typedef typename Pack<V>::type pack;
  alignas(16) float v[UNROLL][V] = {};
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    const pack* from = (const pack*)(at + u * SLICES * inner);
    if (WHOLE || u * SLICES < left) *(pack*)v[u] = STREAM ? __ldcs(from) : *from;
  }
#pragma unroll
  for (int u = 0; u < UNROLL; u++)
#pragma unroll
    for (int k = 0; k < V; k++) sum[k] += v[u][k];
}

// y[part][outer][inner] = sum of the rows of one part.
template <int V>
__global__ void __launch_bounds__(LANES* SLICES) sum_kernel(const float* x, float* y, int64_t outer, int64_t rows,
                                                            int64_t inner, int64_t strips, int parts) {
  __shared__ float others[SLICES][LANES][V];
  const int64_t block = blockIdx.x;
  const int64_t strip = COLUMNS_FIRST ? block % strips : block / parts % strips;
  const int part = COLUMNS_FIRST ? block / strips % parts : block % parts;
  const int64_t batch = block / (strips * parts);
  const int64_t column = (strip * LANES + threadIdx.x) * V;
  const int64_t share = (rows + parts - 1) / parts;
  const int64_t end = (part + 1) * share < rows ? (part + 1) * share : rows;
  float total[V] = {};
  if (column < inner) {
    const float* at = x + batch * rows * inner + column;
    for (int64_t row = part * share + threadIdx.y; row < end;) {
      float group[V] = {};
      for (int step = 0; step < GROUP / UNROLL && row < end; step++, row += UNROLL * SLICES)
        if (row + (UNROLL - 1) * SLICES < end) add_rows<V, true>(group, at + row * inner, inner, 0);
        else add_rows<V, false>(group, at + row * inner, inner, end - row);
#pragma unroll
      for (int k = 0; k < V; k++) total[k] += group[k];
    }
  }
#pragma unroll
  for (int k = 0; k < V; k++) others[threadIdx.y][threadIdx.x][k] = total[k];
  __syncthreads();
  if (threadIdx.y == 0 && column < inner) {
    for (int slice = 1; slice < SLICES; slice++)
#pragma unroll
      for (int k = 0; k < V; k++) total[k] += others[slice][threadIdx.x][k];
#pragma unroll
    for (int k = 0; k < V; k++) y[(part * outer + batch) * inner + column + k] = total[k];
  }
}

__global__ void add_parts(const float* partial, float* y, int64_t count, int parts) {
  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  float sum = partial[i];
  for (int part = 1; part < parts; part++) sum += partial[part * count + i];
  y[i] = sum;
}

template <int V>
void launch(const float* x, float* y, int64_t outer, int64_t rows, int64_t inner, cudaStream_t stream) {
  const int64_t strips = (inner / V + LANES - 1) / LANES;
  sum_kernel<V><<<(unsigned)(strips * SPLIT * outer), dim3(LANES, SLICES), 0, stream>>>(x, y, outer, rows, inner, strips, SPLIT);
}

extern "C" int parts() { return SPLIT; }

// `partial` holds SPLIT * outer * inner floats and is y itself when SPLIT is 1.
extern "C" int sum_launch(const float* x, float* y, float* partial, int64_t outer, int64_t rows, int64_t inner,
                          cudaStream_t stream) {
  if ((uintptr_t)x % (4 * VEC) == 0 && inner % VEC == 0) launch<VEC>(x, partial, outer, rows, inner, stream);
  else launch<1>(x, partial, outer, rows, inner, stream);
  if (SPLIT > 1) add_parts<<<(unsigned)((outer * inner + 255) / 256), 256, 0, stream>>>(partial, y, outer * inner, SPLIT);
  return cudaGetLastError();
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


LIBRARY = build("sum_reduce")
SUM = LIBRARY.sum_launch
SUM.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int64] * 3 + [ctypes.c_void_p]


class ModelNew(nn.Module):
    """Sum over `dim`, which stays with length 1; x fp32 of any shape on a CUDA device."""

    def __init__(self, dim: int):
        super().__init__()
        self.dim = dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dtype != torch.float32 or x.device.type != "cuda":
            raise TypeError(f"this kernel takes fp32 on a CUDA device, not {x.dtype} on {x.device}")
        x = x.contiguous()
        dim = self.dim % x.dim()
        outer, rows, inner = math.prod(x.shape[:dim]), x.shape[dim], math.prod(x.shape[dim + 1 :])
        y = torch.empty(*x.shape[:dim], 1, *x.shape[dim + 1 :], device=x.device)
        if y.numel():
            parts = LIBRARY.parts()
            partial = torch.empty(parts * y.numel(), device=x.device) if parts > 1 else y
            stream = torch.cuda.current_stream().cuda_stream
            status = SUM(x.data_ptr(), y.data_ptr(), partial.data_ptr(), outer, rows, inner, stream)
            if status:
                raise RuntimeError(f"sum_reduce: {LIBRARY.describe(status).decode()}")
        return y
