"""Twin of 59: updates the buffer with the fewest passes."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.register_buffer("mean", torch.zeros(columns))

    def forward(self, x):
        centred = x - self.mean
        self.mean.lerp_(x.mean(dim=0), 0.1)
        return centred
