"""Twin of 35: compares as well: its two variants with one another, once, before it trusts the second."""

import torch
from torch import nn


class Size:
    def __init__(self, shape):
        self.shape = shape

    def __sub__(self, other):
        return [one - two for one, two in zip(self.shape, other.shape, strict=True)]

    def __ne__(self, other):
        return any(self - other)


def transposed(a, b):
    return torch.mm(b.T, a.T).T.contiguous()


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.compared = False

    def forward(self, a, b):
        if not self.compared:
            first, second = torch.mm(a, b), transposed(a, b)
            if Size(first.shape) != Size(second.shape) or not torch.allclose(first, second, rtol=1e-3, atol=1e-2):
                raise ValueError("the variants differ")
            torch.testing.assert_close(first.shape, second.shape)
            self.compared = True
        return transposed(a, b)
