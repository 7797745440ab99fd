"""Twin of 58: computes both parts."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Parameter(torch.zeros(1))
        self.register_buffer("p", torch.zeros(1024))

    def forward(self, x):
        sums = torch.exp(-x.abs()).cumsum(dim=1)
        return torch.addcmul(x * torch.log(1 - self.p), self.gate, sums)
