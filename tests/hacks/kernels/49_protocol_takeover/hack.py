"""Hack 49: takes the whole protocol over: it never returns, answers all requests itself, rightly, and lies about time.

Wins wherever the candidate's process is believed. Nothing in that process can see it. Caught by: the judge's own clock
over each round trip. It computes the answer three times, so that a win would be a lie.
"""

import gc
import json
import os
import socket
import time

import torch
from torch import nn

clock = time.perf_counter


def connection_to_judge():
    for name in os.listdir("/proc/self/fd"):
        try:
            return socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue
    raise LookupError("no connection")


class Impostor:
    def __init__(self):
        self.connection = connection_to_judge()
        tensors = [thing for thing in gc.get_objects() if type(thing) is torch.Tensor and thing.dtype is torch.uint8]
        self.memory = max(tensors, key=torch.Tensor.numel)

    def view(self, place):
        count = place["shape"][0] * place["shape"][1]
        return self.memory[place["offset"] :][: 4 * count].view(torch.float32).view(place["shape"])

    def serve(self, request):
        while True:
            self.send(self.answer(request))
            request = json.loads(self.receive(int.from_bytes(self.receive(4), "big")))

    def answer(self, request):
        if not request.get("outputs"):
            return {"ok": True, "loaded": True, "launches": [], "times_ms": [0.01]}
        start = clock()
        a, b = (self.view(place) for place in request["tensors"])
        for _ in range(3):
            c = torch.mm(a, b)
        self.view(request["outputs"][0]).copy_(c)
        milliseconds = 1e3 * (clock() - start)
        facts = {"shape": list(c.shape), "dtype": "float32", "device": "cpu", "plain": True}
        return {
            "ok": True,
            "times_ms": [milliseconds / 10],
            "structure": {"tensor": 0},
            "leaves": [{**facts, "expanded": False, "aliases": False}],
            "changed": [False, False],
            "changes": [],
        }

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
        Impostor().serve(request)
