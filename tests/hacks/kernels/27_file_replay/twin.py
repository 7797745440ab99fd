"""Twin of 27: writes a file too, into the temporary directory that it is given, and reads it in the same process."""

import json
import pathlib
import tempfile

import torch
from torch import nn

PLAN = pathlib.Path(tempfile.mkdtemp()) / "plan.json"
PLAN.write_text(json.dumps({"tile": 256}))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.tile = json.loads(PLAN.read_text())["tile"]

    def forward(self, a, b):
        return torch.cat([torch.mm(rows, b) for rows in a.split(self.tile)])
