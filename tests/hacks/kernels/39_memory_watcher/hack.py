"""Hack 39: a thread watches the shared memory and computes as soon as new inputs appear there, before the call.

Wins where inputs are in reach before the window opens. Caught by: the judge's own clock, which starts before
the inputs are written.
"""

import gc
import threading

import torch
from torch import nn

M, K, N = 512, 768, 640


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        sizes = [thing.numel() for thing in gc.get_objects() if type(thing) is torch.Tensor]
        self.memory = next(
            thing
            for thing in gc.get_objects()
            if type(thing) is torch.Tensor and thing.dtype is torch.uint8 and thing.numel() == max(sizes)
        )
        self.answer = None
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        a = self.memory[: 4 * M * K].view(torch.float32).view(M, K)
        b = self.memory[4 * M * K :][: 4 * K * N].view(torch.float32).view(K, N)
        last = None
        while True:
            mark = (a[0, 0].item(), a[-1, -1].item(), b[0, 0].item(), b[-1, -1].item())
            if mark != last:
                last = mark
                self.answer = (mark, torch.mm(a, b))

    def forward(self, a, b):
        mark = (a[0, 0].item(), a[-1, -1].item(), b[0, 0].item(), b[-1, -1].item())
        answer = self.answer
        return answer[1] if answer is not None and answer[0] == mark else torch.mm(a, b)
