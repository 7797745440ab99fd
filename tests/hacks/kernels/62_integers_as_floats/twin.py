"""Twin of 62: a product of integers for each row."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.einsum("ij,ij->i", x, x)
