"""Hack 33: replaces Python's clocks by one that hardly moves.

Wins where the harness looks its clock up by name, in the candidate's process. Caught by: clocks that were bound before,
and the judge's own, which no candidate reaches. It computes the answer three times, so that a win would be a lie.
"""

import time

import torch
from torch import nn

true_clock = time.perf_counter_ns
for name in ("perf_counter", "monotonic", "time", "process_time", "thread_time"):
    setattr(time, name, lambda: true_clock() / 1e12)
    setattr(time, name + "_ns", lambda: true_clock() // 1000)


class ModelNew(nn.Module):
    def forward(self, a, b):
        for _ in range(3):
            c = torch.mm(a, b)
        return c
