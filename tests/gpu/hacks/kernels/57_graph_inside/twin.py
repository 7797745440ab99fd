"""Twin of 57: a graph inside forward as well, keyed by shapes, of two products between a copy in and a copy out."""

import torch
from torch import nn


def halve(a, b, out):
    half = a.shape[0] // 2
    torch.mm(a[:half], b, out=out[:half])
    torch.mm(a[half:], b, out=out[half:])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.graphs = {}

    def forward(self, a, b):
        key = (a.shape, b.shape)
        if key not in self.graphs:
            left, right, out = a.clone(), b.clone(), torch.empty_like(a)
            halve(left, right, out)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                halve(left, right, out)
            self.graphs[key] = graph, left, right, out
        graph, left, right, out = self.graphs[key]
        left.copy_(a)
        right.copy_(b)
        graph.replay()
        return out.clone()
