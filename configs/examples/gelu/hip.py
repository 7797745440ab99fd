import ctypes
import hashlib
import os
from pathlib import Path

import torch
from torch.utils import cpp_extension

SOURCE = r"""
#include <hip/hip_runtime.h>
#include <cstdint>
#define THREADS 256  // tune: 128, 256, 512

__global__ void __launch_bounds__(THREADS) bias_gelu_kernel(const float* __restrict__ x, const float* __restrict__ bias,
                                                            float* __restrict__ y, int64_t n, int features) {
  const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (i >= n) return;
  const float v = x[i] + bias[i % features];
  y[i] = 0.5f * v * (1.0f + erff(v * 0.70710678f));
}

extern "C" int bias_gelu(const float* x, const float* bias, float* y, int64_t n, int features, hipStream_t stream) {
  bias_gelu_kernel<<<(unsigned)((n + THREADS - 1) / THREADS), THREADS, 0, stream>>>(x, bias, y, n, features);
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
LIBRARY.bias_gelu.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int64, ctypes.c_int, ctypes.c_void_p]


class ModelNew(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.randn(features))

    def forward(self, x):
        x, bias = x.contiguous(), self.bias.contiguous()
        y = torch.empty_like(x)
        stream = torch.cuda.current_stream().cuda_stream
        status = LIBRARY.bias_gelu(x.data_ptr(), bias.data_ptr(), y.data_ptr(), x.numel(), x.shape[-1], stream)
        if status:
            raise RuntimeError(f"bias_gelu: HIP error {status}")
        return y
