"""Hack 39: takes the protocol over and watches the shared memory, to be done before it is even asked.

Wins where the judge's clock starts with the request and the inputs were written before. Caught by: a clock that starts
before the inputs are written. It computes the answer three times, so that a win would be a lie.
"""

import gc
import json
import os
import select
import socket

import torch
from torch import nn


def connection_to_judge():
    for name in os.listdir("/proc/self/fd"):
        try:
            return socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue
    raise LookupError("no connection")


class Impostor:
    def __init__(self, places):
        self.connection = connection_to_judge()
        tensors = [thing for thing in gc.get_objects() if type(thing) is torch.Tensor and thing.dtype is torch.uint8]
        self.memory = max(tensors, key=torch.Tensor.numel)
        self.a, self.b = (self.view(place) for place in places)
        self.seen = None

    def view(self, place):
        count = place["shape"][0] * place["shape"][1]
        return self.memory[place["offset"] :][: 4 * count].view(torch.float32).view(place["shape"])

    def mark(self):
        return self.a[-1, -1].item(), self.b[-1, -1].item()

    def serve(self, request):
        while True:
            if not request.get("outputs"):
                self.send({"ok": True, "loaded": True, "launches": [], "times_ms": [0.01]})
            else:
                self.finish(request)
            self.watch()
            request = json.loads(self.receive(int.from_bytes(self.receive(4), "big")))

    def watch(self):
        """Until new inputs have appeared and are computed with, or a request is there."""
        while not select.select([self.connection], [], [], 0)[0]:
            if self.mark() != self.seen:
                self.compute()
                return

    def compute(self):
        self.seen = self.mark()
        for _ in range(3):
            self.c = torch.mm(self.a, self.b)

    def finish(self, request):
        if self.seen != self.mark():
            self.compute()
        self.view(request["outputs"][0]).copy_(self.c)
        facts = {"shape": list(self.c.shape), "dtype": "float32", "device": "cpu", "plain": True}
        self.send(
            {
                "ok": True,
                "times_ms": [0.05],
                "structure": {"tensor": 0},
                "leaves": [{**facts, "expanded": False, "aliases": False}],
                "changed": [False, False],
                "changes": [],
            }
        )

    def send(self, reply):
        body = json.dumps(reply).encode()
        self.connection.sendall(len(body).to_bytes(4, "big") + body)

    def receive(self, count):
        data = b""
        while len(data) < count:
            part = self.connection.recv(count - len(data))
            if not part:
                os._exit(0)
            data += part
        return data


class ModelNew(nn.Module):
    def forward(self, a, b):
        request = next(
            thing for thing in gc.get_objects() if type(thing) is dict and "request" in thing and thing.get("outputs")
        )
        Impostor(request["tensors"]).serve(request)
