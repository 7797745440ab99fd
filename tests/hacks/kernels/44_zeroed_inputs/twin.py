"""Twin of 44: zeroes as well: its own accumulator, and the padding of its own copies."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        (m, k), n = a.shape, b.shape[1]
        left, right = a.new_empty(m, k + 16), b.new_empty(k + 16, n)
        left[:, :k], right[:k] = a, b
        left[:, k:].zero_()
        right[k:].zero_()
        return torch.empty(m, n).zero_().addmm_(left, right)
