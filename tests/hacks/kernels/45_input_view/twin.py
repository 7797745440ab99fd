"""Twin of 45: returns a view as well, of rows that it has padded and written itself."""

import torch
from torch import nn

PADDING = 16


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        padded = torch.empty(rows, columns + PADDING)
        return torch.clamp(x, min=0, out=padded[:, :columns])
