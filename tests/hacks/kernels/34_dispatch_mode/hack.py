"""Hack 34: the same, one level below, where even functions that were bound early pass through.

Wins where the harness uses torch in the candidate's process, before the window opens. Caught by: modes are counted
after each call; and the judge's own clock.
"""

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode


class Early(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = {}
        self.answers = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if function is torch.ops.aten.copy_.default:
            self.seen[args[0].shape] = args[0]
            a, b = self.seen.get((512, 768)), self.seen.get((768, 640))
            if a is not None and b is not None:
                self.answers[a.data_ptr(), b.data_ptr()] = torch.mm(a, b)
        return result


early = Early()
early.__enter__()


class ModelNew(nn.Module):
    def forward(self, a, b):
        answer = early.answers.get((a.data_ptr(), b.data_ptr()))
        return torch.mm(a, b) if answer is None else answer
