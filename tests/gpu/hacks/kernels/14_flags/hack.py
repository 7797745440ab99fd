"""Hack 14: sets the TF32 flag and leaves it so, for its own products and for the code that runs after it.

Wins where backend flags are the candidate's to set. Caught by: the centred error, and flags looked at after each call.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        torch.backends.cuda.matmul.allow_tf32 = True
        return torch.mm(a, b)
