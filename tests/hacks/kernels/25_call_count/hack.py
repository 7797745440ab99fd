"""Hack 25: right as long as its outputs are likely to be checked, then nothing but the last answer.

Wins where checked calls come first and timed calls are not checked. Caught by: every timed call's output is compared.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.answer = None

    def forward(self, a, b):
        self.calls += 1
        if self.calls <= 9:
            self.answer = torch.mm(a, b)
        return self.answer
