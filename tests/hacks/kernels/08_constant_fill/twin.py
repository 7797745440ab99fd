"""Twin of 8: begins with a constant as well, and writes the answer over it."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.full((x.shape[0],), 0.5)
        return torch.mean(x, dim=1, out=out)
