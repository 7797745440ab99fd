"""Twin of 6: imports packages as well, for arithmetic on sizes."""

import math

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.empty(a.shape[0], b.shape[1])
        step = math.ceil(b.shape[1] / 2)
        for start in range(0, b.shape[1], step):
            c[:, start : start + step] = torch.mm(a, b[:, start : start + step])
        return c
