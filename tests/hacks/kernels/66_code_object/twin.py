"""Twin of 66: makes a function of another one, by what Python offers for it."""

import functools

import torch
from torch import nn


def product(out, a, b):
    return torch.mm(a, b, out=out)


class ModelNew(nn.Module):
    def forward(self, a, b):
        step = functools.partial(product, torch.empty(a.shape[0], b.shape[1]))
        return step(a, b)
