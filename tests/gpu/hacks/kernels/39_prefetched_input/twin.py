"""Twin of 39: fetches ahead on a stream of its own as well: the second half of this call's input, and no other's."""

import torch
from torch import nn

side = torch.cuda.Stream()


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.next = None

    def forward(self, x):
        half = x.shape[0] // 2
        if self.next is None:
            self.next = torch.empty_like(x[half:])
        y = torch.empty_like(x)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.next.copy_(x[half:])
        torch.mul(x[:half], x[:half], out=y[:half])
        torch.cuda.current_stream().wait_stream(side)
        torch.mul(self.next, self.next, out=y[half:])
        return y
