"""Twin of 62: looks at all elements before it takes the short way."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        if bool((x > 0).all()):
            return x.clone()
        return torch.relu(x)
