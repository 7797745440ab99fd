"""Twin of 54: expands as well, and writes every element of what it returns."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.mean(dim=1, keepdim=True).expand(x.shape).contiguous()
