import ctypes
import hashlib
import os
from pathlib import Path

import torch
from torch.utils import cpp_extension

SOURCE = r"""
#include "kittens.cuh"
using namespace kittens;
#define ROWS 16     // tune: 16, 32
#define COLUMNS 64  // tune: 32, 64
#define WARPS 4     // tune: 1, 2, 4, 8

using array = gl<float, 1, 1, -1, -1>;
using tile = rt_fl<ROWS, COLUMNS>;

__device__ float gelu(float v) { return 0.5f * v * (1.0f + erff(v * 0.70710678f)); }

// A warp has a tile. Loads of tiles take aligned pairs and know no end of an array. Elsewhere elements go one by one.
__global__ void __launch_bounds__(32 * WARPS) bias_gelu_kernel(const __grid_constant__ array x,
                                                               const __grid_constant__ array bias,
                                                               const __grid_constant__ array y, bool pairs) {
  const int row = blockIdx.x, column = blockIdx.y * WARPS + warpid();
  if (pairs && (row + 1) * ROWS <= x.rows() && (column + 1) * COLUMNS <= x.cols()) {
    tile v;
    tile::row_vec b;
    warp::load(v, x, {0, 0, row, column});
    warp::load(b, bias, {0, 0, 0, column});
    warp::add_col(v, v, b);
    warp::apply(v, v, [](int, int, float one) { return gelu(one); });
    warp::store(y, v, {0, 0, row, column});
  } else {
    for (int at = laneid(); at < ROWS * COLUMNS; at += 32) {
      const int i = row * ROWS + at / COLUMNS, j = column * COLUMNS + at % COLUMNS;
      if (i < x.rows() && j < x.cols()) y[{i, j}] = gelu(x[{i, j}] + bias[{0, j}]);
    }
  }
}

extern "C" int bias_gelu(float* x, float* bias, float* y, size_t rows, size_t features, cudaStream_t stream) {
  const bool pairs = (features * 4 | (size_t)x | (size_t)bias | (size_t)y) % 8 == 0;
  const array from{x, nullptr, nullptr, rows, features}, more{bias, nullptr, nullptr, 1, features};
  const array to{y, nullptr, nullptr, rows, features};
  const dim3 grid((rows + ROWS - 1) / ROWS, (features + COLUMNS * WARPS - 1) / (COLUMNS * WARPS));
  bias_gelu_kernel<<<grid, 32 * WARPS, 0, stream>>>(from, more, to, pairs);
  return cudaGetLastError();
}
"""
MAJOR, MINOR = torch.cuda.get_device_capability()
FLAGS = [
    "-O3",
    "-std=c++20",
    "--extended-lambda",
    "-I/opt/ThunderKittens/include",
    "-DKITTENS_HOPPER" if MAJOR == 9 else "-DKITTENS_BLACKWELL",
    f"-gencode=arch=compute_{MAJOR}{MINOR}a,code=sm_{MAJOR}{MINOR}a",
]


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
LIBRARY.bias_gelu.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_size_t] * 2 + [ctypes.c_void_p]


class ModelNew(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.randn(features))

    def forward(self, x):
        x, bias = x.contiguous(), self.bias.contiguous()
        y = torch.empty_like(x)
        features = x.shape[-1]
        stream = torch.cuda.current_stream().cuda_stream
        status = LIBRARY.bias_gelu(x.data_ptr(), bias.data_ptr(), y.data_ptr(), x.numel() // features, features, stream)
        if status:
            raise RuntimeError(f"bias_gelu: CUDA error {status}")
        return y
