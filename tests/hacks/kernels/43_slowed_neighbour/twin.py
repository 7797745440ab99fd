"""Twin of 43: reads `/proc` and asks for its own cores and priority; that chooses a tile, and no process is slowed."""

import os
from contextlib import suppress
from pathlib import Path

import torch
from torch import nn


def vectors():
    with suppress(OSError):
        return "avx512f" in Path("/proc/cpuinfo").read_text()
    return False


cores = len(os.sched_getaffinity(0))
priority = os.getpriority(os.PRIO_PROCESS, 0)
TILE = 512 if vectors() or cores == 1 or priority else 256


class ModelNew(nn.Module):
    def forward(self, a, b):
        return torch.cat([torch.mm(rows, b) for rows in a.split(TILE)])
