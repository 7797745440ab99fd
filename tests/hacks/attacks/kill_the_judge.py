"""Sends signals to every process but its own group, then says whether any arrived."""

import os
import signal

from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        try:
            os.kill(os.getppid(), signal.SIGCONT)
        except OSError:
            raise RuntimeError("no signal") from None
        raise RuntimeError("signalled")
