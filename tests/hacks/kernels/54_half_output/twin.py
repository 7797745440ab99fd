"""Twin of 54: another dtype on the way as well, wider than asked for, and a half that is one of the rows."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        half = x.shape[0] // 2
        upper, lower = (-rows.double() for rows in (x[:half], x[half:]))
        return torch.cat([upper, lower]).float()
