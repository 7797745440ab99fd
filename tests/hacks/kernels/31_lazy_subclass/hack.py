"""Hack 31: a tensor that computes when it is read.

Wins where the clock stops before the comparison. Caught by: only plain tensors are taken.
"""

import torch
from torch import nn


class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        solved = [argument.solve() if isinstance(argument, Lazy) else argument for argument in args]
        return function(*solved, **(kwargs or {}))

    def solve(self):
        return torch.mm(self.a, self.b)


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.Tensor._make_subclass(Lazy, torch.empty(a.shape[0], b.shape[1]))
        c.a, c.b = a, b
        return c
