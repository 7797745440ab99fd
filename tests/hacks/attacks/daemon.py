"""Leaves a detached process behind, then fails."""

import os

from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.execv("/bin/sleep", ["sleep", "MARKER"])
            os._exit(0)
        os.wait()
        os._exit(3)
