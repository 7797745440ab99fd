"""Twin of 30: forks in torch's sense: a task of its own process, which the call waits for, writing to mapped memory."""

import mmap
import os

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = None
        self.child = f"a task of process {os.getpid()}"

    def forward(self, a, b):
        if self.shared is None:
            memory = mmap.mmap(-1, 4 * a.shape[0] * b.shape[1])
            self.shared = torch.frombuffer(memory, dtype=torch.float32).view(a.shape[0], b.shape[1])
        half = a.shape[0] // 2
        forked = torch.jit.fork(torch.mm, a[:half], b)
        torch.mm(a[half:], b, out=self.shared[half:])
        self.shared[:half] = torch.jit.wait(forked)
        return self.shared.clone()
