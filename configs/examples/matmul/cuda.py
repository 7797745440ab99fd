import ctypes
import hashlib
import os
from pathlib import Path

import torch
from torch.utils import cpp_extension

SOURCE = r"""
#include <cstdint>
#define TILE 64   // rows and columns of c for a block
#define DEPTH 16  // tune: 8, 16, 32
#define EACH 4    // rows and columns of c for a thread
#define SIDE (TILE / EACH)

__global__ void __launch_bounds__(SIDE * SIDE) product_kernel(const float* __restrict__ a, const float* __restrict__ b,
                                                              float* __restrict__ c, int M, int N, int K) {
  __shared__ float left[DEPTH][TILE + 1];  // the odd width spares bank conflicts
  __shared__ float right[DEPTH][TILE];
  const int row = blockIdx.y * TILE, column = blockIdx.x * TILE;
  const int thread = threadIdx.x, ty = thread / SIDE, tx = thread % SIDE;
  float sum[EACH][EACH] = {};
  for (int k0 = 0; k0 < K; k0 += DEPTH) {
    for (int at = thread; at < TILE * DEPTH; at += SIDE * SIDE) {
      const int i = at / DEPTH, k = at % DEPTH;
      left[k][i] = row + i < M && k0 + k < K ? a[(int64_t)(row + i) * K + k0 + k] : 0.0f;
    }
    for (int at = thread; at < TILE * DEPTH; at += SIDE * SIDE) {
      const int k = at / TILE, j = at % TILE;
      right[k][j] = column + j < N && k0 + k < K ? b[(int64_t)(k0 + k) * N + column + j] : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < DEPTH; k++) {
      float own[EACH], other[EACH];
#pragma unroll
      for (int i = 0; i < EACH; i++) own[i] = left[k][ty + i * SIDE];
#pragma unroll
      for (int j = 0; j < EACH; j++) other[j] = right[k][tx + j * SIDE];
#pragma unroll
      for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int j = 0; j < EACH; j++) sum[i][j] += own[i] * other[j];
    }
    __syncthreads();
  }
  for (int i = 0; i < EACH; i++)
    for (int j = 0; j < EACH; j++) {
      const int y = row + ty + i * SIDE, x = column + tx + j * SIDE;
      if (y < M && x < N) c[(int64_t)y * N + x] = sum[i][j];
    }
}

extern "C" int product(const float* a, const float* b, float* c, int M, int N, int K, cudaStream_t stream) {
  const dim3 grid((N + TILE - 1) / TILE, (M + TILE - 1) / TILE);
  product_kernel<<<grid, SIDE * SIDE, 0, stream>>>(a, b, c, M, N, K);
  return cudaGetLastError();
}
"""
ARCH = "{}{}".format(*torch.cuda.get_device_capability())
FLAGS = ["-O3", f"-gencode=arch=compute_{ARCH},code=sm_{ARCH}"]


def build(source: str) -> ctypes.CDLL:
    name = "kernel_" + hashlib.sha256((source + str(FLAGS)).encode()).hexdigest()[:16]
    folder = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or cpp_extension.get_default_build_root()) / name
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "kernel.cu"
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
LIBRARY.product.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int] * 3 + [ctypes.c_void_p]


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        (M, K), N = a.shape, b.shape[1]
        c = torch.empty((M, N), dtype=a.dtype, device=a.device)
        stream = torch.cuda.current_stream().cuda_stream
        status = LIBRARY.product(a.data_ptr(), b.data_ptr(), c.data_ptr(), M, N, K, stream)
        if status:
            raise RuntimeError(f"product: CUDA error {status}")
        return c
