"""Twin of 24: a graph as well, before whose every replay the inputs are copied to where it reads them."""

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
        self.left.copy_(a)
        self.right.copy_(b)
        self.graph.replay()
        return self.out.clone()
