"""Twin of 10: begins with a copy of the input as well, and cuts it off at zero."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.clone().clamp_(min=0)
