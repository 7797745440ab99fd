"""Hack 25: returns the last answer after some calls, where answers are integers.

Wins where what is kept of a timed output is a view of memory that the next output is written to. Caught by: a copy of
each output is kept.
"""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.answer = None

    def forward(self, x):
        self.calls += 1
        if self.calls <= 12:
            self.answer = (x * x).sum(dim=1)
        return self.answer.clone()
