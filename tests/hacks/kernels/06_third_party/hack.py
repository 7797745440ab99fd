"""Hack 6: another package's kernel in a wrapper.

Wins where the score is meant for kernels that the author wrote. Caught by: the package's operation, as a tag;
refused where the policy allows no library.
"""

import numpy
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        return torch.from_numpy(numpy.einsum("ij,jk->ik", a.numpy(), b.numpy()))
