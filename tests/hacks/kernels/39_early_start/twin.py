"""Twin of 39: its helper thread is started early as well, works only when it is asked, and is waited for."""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.helper = ThreadPoolExecutor(1)
        self.helper.submit(torch.get_num_threads).result()

    def forward(self, a, b):
        upper = self.helper.submit(torch.mm, a[:256], b)
        lower = torch.mm(a[256:], b)
        return torch.cat([upper.result(), lower])
