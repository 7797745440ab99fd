"""Twin of 28: a stream of its own as well, which the current one waits for."""

import torch
from torch import nn

side = torch.cuda.Stream()


class ModelNew(nn.Module):
    def forward(self, a, b):
        half = a.shape[0] // 2
        c = torch.empty_like(a)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.mm(a[:half], b, out=c[:half])
        torch.mm(a[half:], b, out=c[half:])
        torch.cuda.current_stream().wait_stream(side)
        return c
