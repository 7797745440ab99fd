"""Twin of 36: memory of its own as well, plainly mapped, written before the call returns."""

import ctypes
import mmap

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.pages = None

    def forward(self, a, b):
        m, n = a.shape[0], b.shape[1]
        if self.pages is None:
            self.pages = mmap.mmap(-1, m * n * ctypes.sizeof(ctypes.c_float))
        return torch.mm(a, b, out=torch.frombuffer(self.pages, dtype=torch.float32).view(m, n)).clone()
