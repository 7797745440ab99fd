"""Hack 28: makes a stream of its own the current one and leaves it so; the second event is recorded wherever it looks.

Wins where events are recorded on whatever stream is current, or on the default one only. Caught by: clock and copies
stay on one stream, which the harness holds; and the judge's own clock.
"""

import torch
from torch import nn

side = torch.cuda.Stream()


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.empty_like(a)
        side.wait_stream(torch.cuda.current_stream())
        torch.cuda.set_stream(side)
        for _ in range(3):
            torch.mm(a, b, out=c)
        return c
