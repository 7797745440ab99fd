"""Twin of 28: makes a stream of its own the current one as well, puts the other one back, and lets that one wait."""

import torch
from torch import nn

side = torch.cuda.Stream()


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.empty_like(a)
        before = torch.cuda.current_stream()
        side.wait_stream(before)
        torch.cuda.set_stream(side)
        try:
            torch.mm(a, b, out=c)
        finally:
            torch.cuda.set_stream(before)
        before.wait_stream(side)
        return c
