"""Connects to a server, then says whether that worked."""

import socket

from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        try:
            socket.create_connection(("127.0.0.1", int("PORT")), timeout=2).sendall(b"secrets")
        except OSError:
            raise RuntimeError("no connection") from None
        raise RuntimeError("connected")
