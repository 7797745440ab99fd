"""Hack 33: functions that wait for the device no longer wait, so that the reply is sent while the kernel still runs.

Wins where the worker's synchronisation is believed: the round trip is short, and the answer is there before it
is checked. Caught by: the judge checks at once, and a copy that was not made yet is wrong.
"""

import torch
from torch import nn

torch.cuda.Event.elapsed_time = lambda self, other: 0.05
torch.cuda.Event.synchronize = lambda self: None
torch.cuda.Stream.synchronize = lambda self: None
torch.cuda.synchronize = lambda device=None: None


class ModelNew(nn.Module):
    def forward(self, a, b):
        return torch.mm(a, b)
