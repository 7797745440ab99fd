"""Twin of 20: keeps its workspace by the address of the input, computes in it every time, and returns a copy."""

import torch
from torch import nn

WORKSPACES = {}


class ModelNew(nn.Module):
    def forward(self, a, b):
        key = (a.data_ptr(), b.data_ptr(), a.shape)
        if key not in WORKSPACES:
            WORKSPACES[key] = torch.empty(a.shape[0], b.shape[1])
        return torch.mm(a, b, out=WORKSPACES[key]).clone()
