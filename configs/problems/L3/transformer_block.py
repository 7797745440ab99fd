"""Transformer block: causal self-attention and a GELU perceptron, each behind a layer norm, with residuals.

x (BATCH, LENGTH, WIDTH) in fp32 gives y of the same shape: 206 GFLOP in four products and 17 in the causal attention,
so arithmetic bounds it. The rest is launches and passes over 34 to 134 MB: norms, GELU, residuals, head layout.
"""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 8
LENGTH = 1024
WIDTH = 1024
HEADS = 16

CPU_SIZES = {"BATCH": 2, "LENGTH": 128, "WIDTH": 256, "HEADS": 4}


class Model(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.projection = nn.Linear(width, width, bias=False)
        self.mlp_norm = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 4 * width)
        self.contract = nn.Linear(4 * width, width)
        # With PyTorch's default weights attention is an average over all positions, so small beside the residual
        # that it could be left out. Unit gain elsewhere and 2 here give each position a few others to look at.
        nn.init.normal_(self.qkv.weight, std=2.0 * width**-0.5)
        nn.init.normal_(self.projection.weight, std=width**-0.5)
        nn.init.normal_(self.contract.weight, std=width**-0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self._attention(self.attention_norm(x))
        return x + self.contract(F.gelu(self.expand(self.mlp_norm(x))))

    def _attention(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.projection(heads.transpose(1, 2).reshape(batch, length, width))


def get_inputs():
    return [torch.randn(BATCH, LENGTH, WIDTH)]


def get_init_inputs():
    return [WIDTH, HEADS]
