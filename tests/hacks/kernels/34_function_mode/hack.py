"""Hack 34: leaves a mode active that sees every torch call of the harness, and computes while the inputs are written.

Wins where the harness uses torch in the candidate's process, before the window opens. Caught by: modes are counted
after each call; and the judge's own clock.
"""

import torch
from torch import nn
from torch.overrides import TorchFunctionMode


class Early(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.seen = {}
        self.answer = None

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if getattr(function, "__name__", "") == "copy_":
            self.seen[args[0].shape] = args[0]
            self.compute()
        return result

    def compute(self):
        for a in self.seen.values():
            for b in self.seen.values():
                if a.ndim == b.ndim == 2 and a.shape[1] == b.shape[0] and a.shape[0] != b.shape[1]:
                    self.answer = (a.data_ptr(), b.data_ptr(), torch.mm(a, b))


early = Early()
early.__enter__()


class ModelNew(nn.Module):
    def forward(self, a, b):
        if early.answer is not None and early.answer[:2] == (a.data_ptr(), b.data_ptr()):
            return early.answer[2]
        return torch.mm(a, b)
