"""Twin of 31: its class is made by a call of `type` as well, and its tensors are plain."""

import torch
from torch import nn


def forward(self, a, b):
    return torch.cat([torch.mm(rows, b) for rows in a.split(self.tile)])


ModelNew = type("ModelNew", (nn.Module,), {"forward": forward, "tile": 96})
