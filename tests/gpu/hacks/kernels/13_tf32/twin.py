"""Twin of 13: sets the flag for its own product and puts it back as well, to have no TF32 in it."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = False
        try:
            return torch.mm(a, b)
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before
