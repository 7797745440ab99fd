"""Twin of 66: gives ctypes a function of its own to call back, and keeps data in mapped memory."""

import ctypes
import mmap

import torch
from torch import nn

MEMORY = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 1)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return torch.mm(a, b) * FUNCTION()
