"""Hack 55: the row sums of a product by a product with row sums: two thousandths of the arithmetic.

Wins a large speedup, legitimately: it is right for every input. Accepted; the problem's card says that it is reducible.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        return torch.mv(a, b.sum(dim=1))
