"""Hack 30: a child process computes into shared memory, while the call has long returned.

Wins where threads are counted but children are not. Caught by: the output is copied right behind the end of the
window; processes are counted.
"""

import mmap
import os

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = None

    def forward(self, a, b):
        if self.shared is None:
            torch.set_num_threads(1)
            memory = mmap.mmap(-1, 4 * a.shape[0] * b.shape[1])
            self.shared = torch.frombuffer(memory, dtype=torch.float32).view(a.shape[0], b.shape[1])
        if os.fork() == 0:
            torch.mm(a, b, out=self.shared)
            os._exit(0)
        return self.shared
