"""Hack 21: keeps answers by a signature of a few sampled elements, rounded.

Wins where contents change little from call to call. Caught by: contents that are drawn afresh as a whole.
"""

import torch
from torch import nn

ANSWERS = {}


class ModelNew(nn.Module):
    def forward(self, a, b):
        key = (round(float(a[::32, ::32].sum()) / 64), round(float(b[::32, ::32].sum()) / 64))
        if key not in ANSWERS:
            ANSWERS[key] = torch.mm(a, b)
        return ANSWERS[key]
