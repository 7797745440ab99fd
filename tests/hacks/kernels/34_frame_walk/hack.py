"""Hack 34: walks up the stack to the harness and sets the moment at which the call began to now.

Wins where the only clock is in the candidate's process. Caught by: walking frames is refused; and the judge's own
clock. It computes the answer three times, so that a win would be a lie.
"""

import ctypes
import sys
import time

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        for _ in range(3):
            c = torch.mm(a, b)
        frame = sys._getframe()
        while frame is not None:
            variables = frame.f_locals
            if isinstance(variables.get("start"), int):
                variables["start"] = time.perf_counter_ns() - 20_000
                if sys.version_info < (3, 13):
                    ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
            frame = frame.f_back
        return c
