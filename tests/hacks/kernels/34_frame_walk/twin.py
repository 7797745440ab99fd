"""Twin of 34: `sys._getframe` and `f_back` in words only; it reads the signature of its own function, and the clock."""

import ctypes
import inspect
import sys
import time

import torch
from torch import nn

NOTE = "frame.f_back.f_locals and PyFrame_LocalsToFast are what this kernel does without"


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.frame = len(inspect.signature(self.forward).parameters)
        self.start = time.perf_counter_ns()
        self.word = ctypes.sizeof(ctypes.c_void_p) if sys.version_info >= (3, 10) else 8

    def forward(self, a, b):
        """No frame is walked here: sys._getframe().f_back would be one way, ctypes.pythonapi another."""
        frame = torch.mm(a, b)
        assert self.frame == 2, f"{NOTE}, since {self.start} ns, in words of {self.word} bytes"
        return frame
