"""Twin of 66: runs a text as well, which is written out in the file."""

import torch
from torch import nn

TEXT = """
def product(a, b, out):
    return torch.mm(a, b, out=out)
"""
SPACE = {"torch": torch}
exec(TEXT, SPACE)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return SPACE["product"](a, b, torch.empty(a.shape[0], b.shape[1]))
