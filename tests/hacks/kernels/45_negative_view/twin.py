"""Twin of 45: a view as well, of memory that it has written."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.neg(x.view(-1)).view(x.shape)
