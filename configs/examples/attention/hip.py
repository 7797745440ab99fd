import ctypes
import hashlib
import os
from pathlib import Path

import torch
from torch.utils import cpp_extension

SOURCE = r"""
#include <hip/hip_runtime.h>
#include <cstdint>
#define WIDTH 64
#define QUERIES 128  // tune: 64, 128, 256
#define KEYS 32      // tune: 16, 32, 64

// A thread has one query. The block shares KEYS keys and values at a time.
__global__ void __launch_bounds__(QUERIES) attention_kernel(const float* __restrict__ q, const float* __restrict__ k,
                                                            const float* __restrict__ v, float* __restrict__ out,
                                                            int queries, int keys) {
  __shared__ float key[KEYS][WIDTH], value[KEYS][WIDTH];
  const int i = blockIdx.x * QUERIES + threadIdx.x;
  const int64_t own = ((int64_t)blockIdx.y * queries + (i < queries ? i : queries - 1)) * WIDTH;
  const int64_t other = (int64_t)blockIdx.y * keys * WIDTH;
  float query[WIDTH], sum[WIDTH] = {}, largest = -3e38f, total = 0.0f;
#pragma unroll
  for (int d = 0; d < WIDTH; d++) query[d] = q[own + d] * 0.125f;  // 1 / sqrt(WIDTH)
  for (int start = 0; start < keys; start += KEYS) {
    const int count = min(KEYS, keys - start);
    for (int at = threadIdx.x; at < count * WIDTH; at += QUERIES) {
      key[at / WIDTH][at % WIDTH] = k[other + (int64_t)start * WIDTH + at];
      value[at / WIDTH][at % WIDTH] = v[other + (int64_t)start * WIDTH + at];
    }
    __syncthreads();
    for (int j = 0; j < count; j++) {
      float score = 0.0f;
#pragma unroll
      for (int d = 0; d < WIDTH; d++) score += query[d] * key[j][d];
      if (score > largest) {  // what was summed is relative to the largest score so far
        const float shrink = expf(largest - score);
        total *= shrink;
#pragma unroll
        for (int d = 0; d < WIDTH; d++) sum[d] *= shrink;
        largest = score;
      }
      const float p = expf(score - largest);
      total += p;
#pragma unroll
      for (int d = 0; d < WIDTH; d++) sum[d] += p * value[j][d];
    }
    __syncthreads();
  }
  if (i < queries)
#pragma unroll
    for (int d = 0; d < WIDTH; d++) out[own + d] = sum[d] / total;
}

extern "C" int attention(const float* q, const float* k, const float* v, float* out, int heads, int queries, int keys,
                         hipStream_t stream) {
  const dim3 grid((queries + QUERIES - 1) / QUERIES, heads);
  attention_kernel<<<grid, QUERIES, 0, stream>>>(q, k, v, out, queries, keys);
  return hipGetLastError();
}
"""
ARCH = torch.cuda.get_device_properties().gcnArchName.partition(":")[0]
FLAGS = ["-O3", f"--offload-arch={ARCH}"]


def build(source: str) -> ctypes.CDLL:
    name = "kernel_" + hashlib.sha256((source + str(FLAGS)).encode()).hexdigest()[:16]
    folder = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or cpp_extension.get_default_build_root()) / name
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "kernel.hip"
    if not file.exists():
        file.write_text(source)
    cpp_extension.load(
        name=name,
        sources=[str(file)],
        extra_cuda_cflags=FLAGS,
        build_directory=str(folder),
        is_python_module=False,
        with_cuda=True,
    )
    return ctypes.CDLL(str(folder / f"{name}.so"))


LIBRARY = build(SOURCE)
LIBRARY.attention.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_int] * 3 + [ctypes.c_void_p]


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        if q.shape[-1] != 64:
            raise RuntimeError("written for a width of 64")
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        out = torch.empty_like(q)
        heads, queries, keys = q.shape[0] * q.shape[1], q.shape[2], k.shape[2]
        stream = torch.cuda.current_stream().cuda_stream
        status = LIBRARY.attention(
            q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr(), heads, queries, keys, stream
        )
        if status:
            raise RuntimeError(f"attention: HIP error {status}")
        return out
