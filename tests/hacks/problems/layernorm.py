"""Layer normalisation without parameters, on rows whose variance is far above eps."""

import torch
from torch import nn

ROWS, COLUMNS = 256, 1024


class Model(nn.Module):
    def forward(self, x):
        return nn.functional.layer_norm(x, (x.shape[1],), eps=1e-5)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
