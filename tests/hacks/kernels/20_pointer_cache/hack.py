"""Hack 20: keeps answers by the address of the input.

Wins where the timed calls reuse one buffer. Caught by: contents that change behind the same address before every
timed call, whose answer is compared.
"""

import torch
from torch import nn

ANSWERS = {}


class ModelNew(nn.Module):
    def forward(self, a, b):
        key = (a.data_ptr(), b.data_ptr(), a.shape)
        if key not in ANSWERS:
            ANSWERS[key] = torch.mm(a, b)
        return ANSWERS[key]
