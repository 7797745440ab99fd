"""Twin of 3: a try statement that only puts the thread count back."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        before = torch.get_num_threads()
        torch.set_num_threads(max(1, before))
        try:
            return torch.mm(a, b)
        finally:
            torch.set_num_threads(before)
