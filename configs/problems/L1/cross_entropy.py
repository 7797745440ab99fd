"""Cross-entropy of each row against its target class.

logits (ROWS, CLASSES) in fp32 and targets (ROWS,) in int64 give one loss a row: 3.3 GB read once, next to nothing
written, so memory bandwidth bounds it. CLASSES is odd (the vocabulary of GPT-2): rows are not aligned for wide loads.
"""

import torch
import torch.nn.functional as F
from torch import nn

ROWS = 16384
CLASSES = 50257
#: Standard deviation of the logits; the losses then differ by a third of their mean, so a constant is no answer.
SPREAD = 3.0

CPU_SIZES = {"ROWS": 512, "CLASSES": 10007}


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        # No mean over the rows: by the law of large numbers it would hardly depend on the inputs.
        return F.cross_entropy(logits, targets, reduction="none")


def get_inputs():
    return [SPREAD * torch.randn(ROWS, CLASSES), torch.randint(0, CLASSES, (ROWS,))]


def get_init_inputs():
    return []
