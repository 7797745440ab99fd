"""Twin of 60: looks up its plan by the input's shape, and returns memory of each call's own."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.plans = {}

    def forward(self, x):
        if x.shape not in self.plans:
            self.plans[x.shape] = x.stride()
        return torch.neg(x, out=torch.empty_strided(x.shape, self.plans[x.shape]))
