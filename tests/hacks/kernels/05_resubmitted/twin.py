"""Twin of 5: the reference's constructor, as the weights demand, and a forward of its own."""

import ctypes

import torch
from torch import nn
from torch.utils.cpp_extension import load

SOURCE = r"""
extern "C" void linear(const float* x, const float* weight, const float* bias, float* y, long m, long k, long n) {
  #pragma omp parallel for
  for (long i = 0; i < m; i++)
    for (long j = 0; j < n; j++) {
      float sums[8] = {};
      for (long at = 0; at < k; at += 8)
        for (long lane = 0; lane < 8; lane++) sums[lane] += x[i * k + at + lane] * weight[j * k + at + lane];
      y[i * n + j] = bias[j];
      for (float sum : sums) y[i * n + j] += sum;
    }
}
"""
with open("linear.cpp", "w") as file:
    file.write(SOURCE)
flags = ["-O3", "-march=native", "-fopenmp"]
library = ctypes.CDLL(load("linear", ["linear.cpp"], extra_cflags=flags, is_python_module=False))


class ModelNew(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) / inputs**0.5)
        self.bias = nn.Parameter(2e-4 * torch.rand(outputs) - 1e-4)

    def forward(self, x):
        (m, k), n = x.shape, self.bias.shape[0]
        y = torch.empty(m, n)
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, self.weight, self.bias, y)]
        library.linear(*pointers, *(ctypes.c_long(size) for size in (m, k, n)))
        return y
