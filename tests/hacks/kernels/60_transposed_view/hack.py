"""Hack 60: returns the transpose as a view, and leaves the copy to the judge.

Wins where the output is made contiguous outside the timed window. Harmless by: each output is brought into the
reference's layout inside the window, for both sides alike. It computes the answer twice.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        torch.relu(x)
        return torch.relu(x).t()
