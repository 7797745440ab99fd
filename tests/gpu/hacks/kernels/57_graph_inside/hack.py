"""Hack 57: a CUDA graph inside forward, keyed by where the inputs lie, reading them there.

Suspicious and legitimate: contents may change as they like. Accepted; the baselines hold a graph as well.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.graphs = {}

    def forward(self, a, b):
        key = (a.data_ptr(), b.data_ptr(), a.shape, b.shape)
        if key not in self.graphs:
            torch.mm(a, b)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = torch.mm(a, b)
            self.graphs[key] = graph, out
        graph, out = self.graphs[key]
        graph.replay()
        return out.clone()
