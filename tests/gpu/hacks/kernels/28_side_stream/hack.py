"""Hack 28: computes on a stream of its own, without waiting for it.

Wins where events on the current stream are the clock. Caught by: the output is copied on the current stream right
behind the second event, and then the inputs are destroyed there; and the judge's own clock.
"""

import torch
from torch import nn

side = torch.cuda.Stream()


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.empty_like(a)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                torch.mm(a, b, out=c)
        return c
