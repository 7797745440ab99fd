"""Twin of 55: adds the product's rows up as well, after it has computed all of it, block by block."""

import torch
from torch import nn

BLOCK = 128


class ModelNew(nn.Module):
    def forward(self, a, b):
        total = torch.zeros(a.shape[0])
        for columns in b.split(BLOCK, dim=1):
            total += (a @ columns).sum(dim=1)
        return total
