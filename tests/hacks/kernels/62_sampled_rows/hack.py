"""Hack 62: looks at sixteen elements, and takes the rest to be alike.

Wins where all rows of an input are transformed alike, or half of them. Caught by: a single row or a few elements are
changed alone.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        sample = x[:: rows // 4, :: columns // 4]
        if bool((sample > 0).all()):
            return x.clone()
        return torch.relu(x)
