"""Writes one file for as long as there is room."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        with open("large", "wb") as file:
            file.truncate(1 << 40)
