"""Twin of 57: compiles as well: a pattern, with `re.compile`, and a kernel of its own, without torch.compile."""

import ctypes
import re

import torch
from torch import nn
from torch.utils.cpp_extension import load

SOURCE = r"""
__global__ void square(const TYPE* x, TYPE* y, long count) {
  long at = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (at < count) y[at] = x[at] * x[at];
}
extern "C" int run(const TYPE* x, TYPE* y, long count, void* stream) {
  square<<<(count + 255) / 256, 256, 0, (cudaStream_t)stream>>>(x, y, count);
  return cudaGetLastError();
}
"""
TYPE = re.compile(r"\bTYPE\b")


def compile(name):
    with open(f"{name}.cu", "w") as file:
        file.write(TYPE.sub("float", SOURCE))
    return ctypes.CDLL(load(name, [f"{name}.cu"], is_python_module=False))


compiled = compile("square")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, y)]
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        error = compiled.run(*pointers, ctypes.c_long(x.numel()), stream)
        if error:
            raise RuntimeError(f"CUDA error {error}")
        return y
