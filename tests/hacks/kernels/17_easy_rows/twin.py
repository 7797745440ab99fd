"""Twin of 17: takes the cheap path only after a look at every element."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        if x.amin() >= 0:
            return x.clone()
        return torch.relu(x)
