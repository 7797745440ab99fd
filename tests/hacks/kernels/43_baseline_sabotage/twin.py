"""Twin of 43: another default dtype and another thread count as well, for its own call only."""

from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def defaults(dtype, threads):
    before = torch.get_default_dtype(), torch.get_num_threads()
    torch.set_default_dtype(dtype)
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_default_dtype(before[0])
        torch.set_num_threads(before[1])


class ModelNew(nn.Module):
    def forward(self, a, b):
        with defaults(torch.float64, 1):
            c = torch.empty(a.shape[0], b.shape[1])
            matmul = torch.mm
            matmul(a.double(), b.double(), out=c)
        return c.float()
