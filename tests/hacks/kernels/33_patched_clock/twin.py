"""Twin of 33: uses the clock as well, once, to choose a tile, and leaves it as it is."""

import time

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.tile = 0

    def forward(self, a, b):
        if not self.tile:
            seconds = {}
            for tile in (a.shape[0], a.shape[0] // 2):
                start = time.perf_counter()
                torch.mm(a[:tile], b)
                seconds[tile] = (time.perf_counter() - start) / tile
            self.tile = min(seconds, key=seconds.get)
        return torch.cat([torch.mm(rows, b) for rows in a.split(self.tile)])
