"""Linear head over a vocabulary, softmax, cross-entropy of each row.

x (ROWS, FEATURES), weight (CLASSES, FEATURES) in fp32 and targets (ROWS,) in int64 give one loss a row: 268 GFLOP, so
arithmetic bounds it. The logits are 0.5 GB that are written and read again twice, unless each tile of them is reduced
to its maximum and its sum of exponentials where it was computed.
"""

import torch
import torch.nn.functional as F
from torch import nn

ROWS = 4096
FEATURES = 1024
CLASSES = 32000
#: Standard deviation of the inputs; that of the logits is 0.6 times as large, so that the losses differ by much.
SPREAD = 4.0

CPU_SIZES = {"ROWS": 512, "FEATURES": 128, "CLASSES": 4000}


class Model(nn.Module):
    def __init__(self, features: int, classes: int):
        super().__init__()
        self.head = nn.Linear(features, classes, bias=False)

    def forward(self, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        # No mean over the rows: by the law of large numbers it would hardly depend on the inputs.
        return F.cross_entropy(self.head(x), targets, reduction="none")


def get_inputs():
    return [SPREAD * torch.randn(ROWS, FEATURES), torch.randint(0, CLASSES, (ROWS,))]


def get_init_inputs():
    return [FEATURES, CLASSES]
