"""Twin of 31: a subclass inside, a plain tensor outside."""

import torch
from torch import nn


class Named(torch.Tensor):
    pass


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.mm(a.as_subclass(Named), b)
        return c.as_subclass(torch.Tensor)
