"""Twin of 14: sets a flag for its own call and puts it back; it has no say in the precision."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            return torch.mm(a, b)
