"""Twin of 13: cuts half of the mantissas off as well, and multiplies what it has cut off too."""

import torch
from torch import nn


def split(tensor):
    high = (tensor.view(torch.int32) & ~0x1FFF).view(torch.float32)
    return high, tensor - high


class ModelNew(nn.Module):
    def forward(self, a, b):
        (a_high, a_low), (b_high, b_low) = split(a), split(b)
        return a_high @ b_high + (a_high @ b_low + a_low @ b_high + a_low @ b_low)
