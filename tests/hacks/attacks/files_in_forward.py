"""Each call leaves a file without a name behind, in memory or on disk."""

import os

import torch

held = []


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        name = f"file{len(held)}"
        disk = len(held) % 2
        held.append(os.open(name, os.O_CREAT | os.O_RDWR) if disk else os.memfd_create(name))
        os.posix_fallocate(held[-1], 0, 100 << 20)
        if disk:
            os.remove(name)
        return a @ b
