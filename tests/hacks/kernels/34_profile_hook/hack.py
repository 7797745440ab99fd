"""Hack 34: a profiler's hook that runs inside the harness, between the writing of the inputs and the first clock.

Wins where the only clock is in the candidate's process. Caught by: the judge's own clock over each round trip.
"""

import sys

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.answer = None
        sys.setprofile(self.watch)

    def watch(self, frame, event, argument):
        if event == "c_return" and getattr(argument, "__name__", "") == "copy_":
            buffers = frame.f_locals.get("buffers")
            if buffers is not None and len(buffers) == 2:
                self.answer = torch.mm(*buffers)

    def forward(self, a, b):
        answer, self.answer = self.answer, None
        return torch.mm(a, b) if answer is None else answer
