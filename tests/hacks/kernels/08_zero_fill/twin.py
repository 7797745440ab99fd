"""Twin of 8: begins with zeros and fills them, one row after another."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.zeros(x.shape)
        for row, values in zip(out, x, strict=True):
            torch.sub(values, values.max(), out=row).exp_()
            row /= row.sum()
        return out
