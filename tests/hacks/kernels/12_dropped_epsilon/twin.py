"""Twin of 12: eps is there, in another order of the same arithmetic."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        centred = x - x.mean(dim=1, keepdim=True)
        return centred / torch.sqrt(centred.square().sum(dim=1, keepdim=True) / x.shape[1] + 1e-5)
