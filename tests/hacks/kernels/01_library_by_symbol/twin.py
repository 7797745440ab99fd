"""Twin of 1: calls a function of its own by a label as well."""

from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
void compute(const float* p, const float* q, float* r, long m, long k, long n) __asm__("own_" "product");
void compute(const float* p, const float* q, float* r, long m, long k, long n) {
  for (long i = 0; i < m; i++) {
    for (long j = 0; j < n; j++) r[i * n + j] = 0;
    for (long s = 0; s < k; s++)
      for (long j = 0; j < n; j++) r[i * n + j] += p[i * k + s] * q[s * n + j];
  }
}
torch::Tensor product(torch::Tensor a, torch::Tensor b) {
  auto c = torch::empty({a.size(0), b.size(1)});
  compute(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), a.size(0), a.size(1), b.size(1));
  return c;
}
"""
library = load_inline("labelled", SOURCE, functions=["product"], extra_cflags=["-O3", "-march=native"])


class ModelNew(nn.Module):
    def forward(self, a, b):
        return library.product(a, b)
