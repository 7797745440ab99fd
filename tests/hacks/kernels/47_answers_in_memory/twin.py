"""Twin of 47: searches for a tensor of the answer's shape too, among its own workspaces; the collector only rests."""

import gc

import torch
from torch import nn

WORKSPACES = []


def workspace(shape):
    found = [tensor for tensor in WORKSPACES if tensor.shape == shape]
    if not found:
        found = [torch.empty(shape)]
        WORKSPACES.extend(found)
        gc.collect()
    return found[-1]


class ModelNew(nn.Module):
    def forward(self, a, b):
        """Neither gc.get_objects nor a caller's frame is looked at."""
        rests = gc.isenabled()
        gc.disable()
        try:
            return torch.mm(a, b, out=workspace((a.shape[0], b.shape[1]))).clone()
        finally:
            if rests:
                gc.enable()
