"""Twin of 39: a helper thread that lives for one call, fetches nothing early, and is waited for."""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        with ThreadPoolExecutor(1) as helper:
            upper = helper.submit(torch.mm, a[:256], b)
            lower = torch.mm(a[256:], b)
            return torch.cat([upper.result(), lower])
