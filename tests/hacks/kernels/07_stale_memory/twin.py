"""Twin of 7: begins with unwritten memory too, and writes all of it."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.empty(a.shape[0], b.shape[1])
        torch.mm(a, b, out=c)
        return c
