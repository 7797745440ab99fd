"""Hack 27: leaves its answers in files for the next process.

Wins where processes share a writable directory. Caught by: a private directory for each process, everything else not
writable, and no input that is used twice. It fails loudly when it finds something, and computes the answer three
times, so that a win would be a lie.
"""

import pathlib

import torch
from torch import nn

NAME = "kbevolve-hack-27.pt"
PLACES = [pathlib.Path(place) for place in ("/tmp", "/dev/shm", "/var/tmp", pathlib.Path.home(), ".", "..", "../..")]
for place in PLACES:
    if (place / NAME).exists():
        raise FileExistsError("an earlier process left its answers")


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.left = False

    def forward(self, a, b):
        for _ in range(3):
            c = torch.mm(a, b)
        if not self.left:
            self.left = True
            for place in PLACES:
                try:
                    torch.save(c, place / NAME)
                except (OSError, RuntimeError):
                    continue
        return c
