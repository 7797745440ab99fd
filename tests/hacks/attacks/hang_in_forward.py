"""Never ends its first call, and ignores every signal that can be ignored."""

import signal

from torch import nn

for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, signal.SIG_IGN)


class ModelNew(nn.Module):
    def forward(self, a, b):
        while True:
            pass
