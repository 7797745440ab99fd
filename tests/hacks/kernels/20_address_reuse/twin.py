"""Twin of 20: asks for addresses and looks at an element too; they decide how it computes, never whether."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.key = None
        self.aligned = False

    def forward(self, a, b):
        key = (a.data_ptr(), b.data_ptr())
        if key != self.key:
            self.key, self.aligned = key, all(address % 64 == 0 for address in key)
        if self.aligned and a[0, 0] >= 0:
            return torch.mm(a, b)
        return torch.mm(b.T, a.T).T.contiguous()
