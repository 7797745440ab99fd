"""Hack 24: a graph captured on a copy of the first input, replayed whatever the input is.

Wins where the contents of the inputs do not change. Caught by: inputs of its own for each call.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.graph = None

    def forward(self, a, b):
        if self.graph is None:
            self.left, self.right = a.clone(), b.clone()
            torch.mm(self.left, self.right)
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.out = torch.mm(self.left, self.right)
        self.graph.replay()
        return self.out
