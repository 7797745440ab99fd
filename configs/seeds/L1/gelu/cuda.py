"""L1/gelu in CUDA C++: x * Phi(x), one element a thread at first.

The declared values are the plain kernel. What the tunables do:

- ``THREADS``: threads a block.
- ``VEC``: floats in one access, up to 16 bytes; the launcher takes 1 where the address does not allow more.
- ``UNROLL``: independent accesses in flight in each thread.
- ``PERSISTENT``, ``BLOCKS_PER_SM``: a grid that just fills the device and walks over the tensor.
- ``STREAM_LOAD``, ``STREAM_STORE``: mark what is read or written once as the first to leave the caches.
- ``FAST_ERF``: M. Abramowitz and I. Stegun, "Handbook of Mathematical Functions", 7.1.26 (absolute error 1.5e-7).
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

#define THREADS 256      // tune: 128, 256, 512, 1024
#define VEC 1            // tune: 1, 2, 4
#define UNROLL 1         // tune: 1, 2, 4, 8
#define PERSISTENT 0     // tune: 0, 1
#define BLOCKS_PER_SM 8  // tune: 2, 4, 8, 16
#define STREAM_LOAD 0    // tune: 0, 1
#define STREAM_STORE 0   // tune: 0, 1
#define FAST_ERF 0       // tune: 0, 1

// V floats that move in one access.
template <int V> struct Pack;
template <> struct Pack<1> { typedef float type; };
template <> struct Pack<2> { typedef float2 type; };
template <> struct Pack<4> { typedef float4 type; };

template <int V> __device__ __forceinline__ void read(float (&v)[V], const float* from) {
  typedef typename Pack<V>::type pack;
  *(pack*)v = STREAM_LOAD ? __ldcs((const pack*)from) : *(const pack*)from;
}

template <int V> __device__ __forceinline__ void write(float* to, const float (&v)[V]) {
  typedef typename Pack<V>::type pack;
  if (STREAM_STORE) __stcs((pack*)to, *(const pack*)v);
  else *(pack*)to = *(const pack*)v;
}

__device__ __forceinline__ float gelu(float x) {
  if (!FAST_ERF) return 0.5f * x * (1.0f + erff(x * 0.70710678f));
  const float t = __fdividef(1.0f, fmaf(0.3275911f * 0.70710678f, fabsf(x), 1.0f));
  const float p = fmaf(fmaf(fmaf(fmaf(1.061405429f, t, -1.453152027f), t, 1.421413741f), t, -0.284496736f), t, 0.254829592f);
  const float upper = 0.5f * p * t * __expf(-0.5f * x * x);  // Phi(-|x|), accurate where it is small
  return x * (x < 0 ? upper : 1.0f - upper);
}

template <int V> __global__ void __launch_bounds__(THREADS) gelu_kernel(const float* x, float* y, int64_t count) {
  const int64_t packs = count / V;
  for (int64_t first = (int64_t)blockIdx.x * THREADS * UNROLL + threadIdx.x; first < packs;
       first += (int64_t)gridDim.x * THREADS * UNROLL) {
    alignas(16) float v[UNROLL][V];
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
      if (first + u * THREADS < packs) read<V>(v[u], x + (first + u * THREADS) * V);
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
      if (first + u * THREADS < packs) {
#pragma unroll
        for (int i = 0; i < V; i++) v[u][i] = gelu(v[u][i]);
        write<V>(y + (first + u * THREADS) * V, v[u]);
      }
  }
  if (blockIdx.x == 0 && threadIdx.x < count % V) {  // what does not fill an access
    const int64_t i = packs * V + threadIdx.x;
    y[i] = gelu(x[i]);
  }
}

template <int V> void launch(const float* x, float* y, int64_t count, cudaStream_t stream) {
  int64_t blocks = (count / V + THREADS * UNROLL - 1) / (THREADS * UNROLL);
  if (PERSISTENT) {
    int device = 0, processors = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    if (blocks > (int64_t)processors * BLOCKS_PER_SM) blocks = (int64_t)processors * BLOCKS_PER_SM;
  }
  if (blocks < 1) blocks = 1;
  if (blocks > 2147483647) blocks = 2147483647;  // a grid's limit; the kernel walks on
  gelu_kernel<V><<<(unsigned)blocks, THREADS, 0, stream>>>(x, y, count);
}

extern "C" int gelu_launch(const float* x, float* y, int64_t count, cudaStream_t stream) {
  if (((uintptr_t)x | (uintptr_t)y) % (4 * VEC) == 0) launch<VEC>(x, y, count, stream);
  else launch<1>(x, y, count, stream);
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


LIBRARY = build("gelu")
GELU = LIBRARY.gelu_launch
GELU.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_int64, ctypes.c_void_p]


class ModelNew(nn.Module):
    """GELU of x, fp32 of any shape on a CUDA device."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dtype != torch.float32 or x.device.type != "cuda":
            raise TypeError(f"this kernel takes fp32 on a CUDA device, not {x.dtype} on {x.device}")
        x = x.contiguous()
        y = torch.empty_like(x)
        if x.numel():
            status = GELU(x.data_ptr(), y.data_ptr(), x.numel(), torch.cuda.current_stream().cuda_stream)
            if status:
                raise RuntimeError(f"gelu: {LIBRARY.describe(status).decode()}")
        return y
