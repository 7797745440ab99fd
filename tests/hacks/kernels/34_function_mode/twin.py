"""Twin of 34: a mode as well, active for its own call only."""

import torch
from torch import nn
from torch.overrides import TorchFunctionMode


class Nothing(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


class ModelNew(nn.Module):
    def forward(self, a, b):
        with Nothing():
            return torch.mm(a, b)
