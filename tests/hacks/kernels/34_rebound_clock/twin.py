"""Twin of 34: rebinds the clock of a module as well: its own, to one of two that the system offers."""

import sys
import time

import torch
from torch import nn

clock = time.perf_counter_ns


def choose_clock():
    module = sys.modules[__name__]
    if time.get_clock_info("monotonic").resolution < time.get_clock_info("perf_counter").resolution:
        module.clock = time.monotonic_ns


choose_clock()


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self._clock = clock
        self.times = {}

    def forward(self, a, b):
        tile = min(self.times, key=self.times.get) if len(self.times) == 2 else 256 * (1 + len(self.times))
        start = self._clock()
        c = torch.cat([torch.mm(rows, b) for rows in a.split(tile)])
        self.times.setdefault(tile, self._clock() - start)
        return c
