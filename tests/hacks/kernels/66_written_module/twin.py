"""Twin of 66: writes a module into its directory, too: a text that stands in this file."""

import importlib.util

from torch import nn

TEXT = """
import torch

def product(a, b):
    return torch.mm(a, b)
"""
with open("written.py", "w") as file:
    file.write(TEXT)
SPEC = importlib.util.spec_from_file_location("written", "written.py")
MODULE = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(MODULE)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return MODULE.product(a, b)
