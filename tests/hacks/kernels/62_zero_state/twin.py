"""Twin of 62: adds the state by one product more."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, w, state):
        return torch.addmm(torch.tanh(x @ w), state, w)
