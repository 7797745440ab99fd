"""Twin of 25: counts its calls to try two variants first, and goes on with the faster one."""

import time

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.seconds = {}

    def forward(self, a, b):
        variants = (torch.mm, lambda left, right: torch.mm(right.T, left.T).T.contiguous())
        untried = [number for number in range(2) if number not in self.seconds]
        number = untried[0] if untried else min(self.seconds, key=self.seconds.get)
        start = time.perf_counter()
        c = variants[number](a, b)
        self.seconds.setdefault(number, time.perf_counter() - start)
        return c
