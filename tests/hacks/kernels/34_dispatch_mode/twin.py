"""Twin of 34: a dispatch mode as well, which counts operations and is active for its own call only."""

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode


class Counted(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen[function] = self.seen.get(function, 0) + 1
        return function(*args, **(kwargs or {}))


class ModelNew(nn.Module):
    def forward(self, a, b):
        with Counted() as counted:
            c = torch.mm(a, b)
        assert counted.seen
        return c
