"""Hack 31: the same, with the class made by a call of `type`.

Wins where `class …(torch.Tensor)` is searched for. Caught by: only plain tensors are taken.
"""

import torch
from torch import nn


def look(cls, function, types, args=(), kwargs=None):
    return function(*[torch.mm(*value.pair) if type(value) is cls else value for value in args], **(kwargs or {}))


Late = type("Late", (torch.Tensor,), {"__torch_function__": classmethod(look)})


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.empty(a.shape[0], b.shape[1]).as_subclass(Late)
        c.pair = (a, b)
        return c
