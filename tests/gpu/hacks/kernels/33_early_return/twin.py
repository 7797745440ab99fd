"""Twin of 33: a `synchronize` and an `elapsed_time` too, of a class of its own; it waits for the device and returns."""

import torch
from torch import nn


class Stopwatch:
    def __init__(self):
        self.events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]

    def synchronize(self):
        self.events[1].synchronize()

    def elapsed_time(self):
        start, end = self.events
        return start.elapsed_time(end)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.milliseconds = 0.0

    def forward(self, a, b):
        watch = Stopwatch()
        start, end = watch.events
        start.record()
        c = torch.mm(a, b)
        end.record()
        watch.synchronize()
        self.milliseconds = watch.elapsed_time()
        torch.cuda.synchronize()
        return c
