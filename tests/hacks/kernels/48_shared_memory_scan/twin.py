"""Twin of 48: one piece of bytes that it looks through by offsets too, made and written by itself."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.memory = None

    def forward(self, a, b):
        inputs, count = a.numel() + b.numel(), a.shape[0] * b.shape[1]
        if self.memory is None:
            self.memory = torch.empty(4 * (inputs + count), dtype=torch.uint8)
        words = self.memory.view(torch.float32)
        left = words[: a.numel()].view(a.shape).copy_(a)
        right = words[a.numel() : inputs].view(b.shape).copy_(b)
        return torch.mm(left, right, out=words[inputs:].view(a.shape[0], b.shape[1])).clone()
