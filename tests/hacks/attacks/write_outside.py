"""Leaves a file wherever it can, then says where."""

from pathlib import Path

from torch import nn

PLACES = ("OUTSIDE", "/tmp", "/var/tmp", "/dev/shm", "/usr/local", "/root", "/")


class ModelNew(nn.Module):
    def forward(self, a, b):
        written = []
        for place in PLACES:
            try:
                (Path(place) / "kbevolve-attack").write_text("left here")
                written.append(place)
            except OSError:
                continue
        raise RuntimeError(f"written to {written}")
