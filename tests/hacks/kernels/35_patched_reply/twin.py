"""Twin of 35: a `dumps` of its own as well, in which it writes the times of two variants down."""

import json
import time

import torch
from torch import nn


def dumps(value, **keywords):
    return json.dumps(value, default=str, sort_keys=True, **keywords)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.notes = "{}"

    def forward(self, a, b):
        notes = json.loads(self.notes)
        tile = {0: 512, 1: 256}.get(len(notes)) or int(min(notes, key=lambda key: notes[key]["times_ms"]))
        start = time.perf_counter()
        c = torch.cat([torch.mm(rows, b) for rows in a.split(tile)])
        notes.setdefault(str(tile), {"times_ms": [1e3 * (time.perf_counter() - start)]})
        self.notes = dumps(notes)
        return c
