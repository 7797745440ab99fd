"""Twin of 14: chooses a precision once, when it is imported, and computes exactly."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        return torch.mm(a, b)


torch.set_float32_matmul_precision("highest")
