"""Twin of 60: keeps a workspace between calls, but returns memory of each call's own."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scratch = None

    def forward(self, x):
        if self.scratch is None:
            self.scratch = torch.empty_like(x)
        torch.neg(x, out=self.scratch)
        return self.scratch.clone()
