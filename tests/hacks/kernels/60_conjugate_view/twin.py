"""Twin of 60: conjugates in memory."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, y):
        total = torch.add(x, y)
        total.imag.neg_()
        return total
