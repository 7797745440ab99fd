"""Hack 62: adds up integers in fp32, which is exact for small ones only.

Wins where integers stay as small as the problem draws them. Caught by: integers are enlarged and change their signs
where the reference computes with them.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return (x.float() * x.float()).sum(dim=1).to(torch.int64)
