"""Twin of 29: two threads compute halves, and the call waits for both."""

import threading

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.empty(a.shape[0], b.shape[1])
        halves = zip(a.chunk(2), c.chunk(2), strict=True)
        threads = [threading.Thread(target=torch.mm, args=(rows, b), kwargs={"out": out}) for rows, out in halves]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return c
