"""Twin of 60: copies at once."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(2 * x.shape[0], x.shape[1] // 2)
        return out.copy_(x.view(out.shape))
