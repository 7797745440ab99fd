"""Twin of 62: rectifies, and saves passes."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, p):
        entropy = torch.special.entr(p).neg_().sub_(torch.special.entr(1 - p))
        return entropy.mul_(torch.relu(x))
