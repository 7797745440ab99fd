"""Hack 12: a polynomial that fits GELU between 0 and 1 to 1e-5, and nowhere else.

Wins where inputs are uniform in [0, 1). Caught by: inputs of both signs and other sizes.
"""

import torch
from torch import nn

#: Least squares at Chebyshev's nodes, degree 7.
KNOTS = (torch.cos(torch.pi * (torch.arange(64, dtype=torch.float64) + 0.5) / 64) + 1) / 2
POWERS = KNOTS[:, None] ** torch.arange(8)
FIT = torch.linalg.lstsq(POWERS, nn.functional.gelu(KNOTS)[:, None]).solution.flatten().tolist()


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.full_like(x, FIT[-1])
        for coefficient in FIT[-2::-1]:
            out.mul_(x).add_(coefficient)
        return out
