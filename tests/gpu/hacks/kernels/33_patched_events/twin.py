"""Twin of 33: times itself with events as well, in its first call, to choose between two variants."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.variant = None

    def forward(self, a, b):
        variants = (torch.mm, lambda left, right: torch.mm(right.T, left.T).T.contiguous())
        if self.variant is None:
            times = []
            for variant in variants:
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                variant(a, b)
                start.record()
                variant(a, b)
                end.record()
                end.synchronize()
                times.append(start.elapsed_time(end))
            self.variant = variants[times.index(min(times))]
        return self.variant(a, b)
