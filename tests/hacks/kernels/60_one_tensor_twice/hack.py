"""Hack 60: returns one tensor for two outputs.

Wins where outputs are compared one by one: a user who changes one of them changes both. Caught by: outputs may not
overlap unless the reference's do.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.relu(x)
        return [y, y]
