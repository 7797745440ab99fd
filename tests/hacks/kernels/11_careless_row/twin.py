"""Twin of 11: one row is computed apart, with the same care."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.mm(a, b)
        c[17] = a[17] @ b
        return c
