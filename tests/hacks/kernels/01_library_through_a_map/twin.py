"""Twin of 1: reaches a kernel of its own the same way."""

from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
torch::Tensor product(torch::Tensor a, torch::Tensor b) {
  long m = a.size(0), k = a.size(1), n = b.size(1);
  auto c = torch::empty({m, n});
  const float* p = a.data_ptr<float>();
  const float* q = b.data_ptr<float>();
  float* r = c.data_ptr<float>();
  for (long i = 0; i < m; i++) {
    for (long j = 0; j < n; j++) r[i * n + j] = 0;
    for (long s = 0; s < k; s++)
      for (long j = 0; j < n; j++) r[i * n + j] += p[i * k + s] * q[s * n + j];
  }
  return c;
}
"""
library = load_inline("mapped", SOURCE, functions=["product"], extra_cflags=["-O3", "-march=native"])
PARTS = {"first": lambda one, other: next(map(library.product, (one,), (other,)))}


class ModelNew(nn.Module):
    def forward(self, a, b):
        return next(part(a, b) for part in PARTS.values())
