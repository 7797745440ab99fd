"""A matrix product of some milliseconds: long enough for the judge's own clock to contradict the worker's."""

import torch
from torch import nn

M, K, N = 512, 768, 640


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.rand(M, K), torch.rand(K, N)]


def get_init_inputs():
    return []
