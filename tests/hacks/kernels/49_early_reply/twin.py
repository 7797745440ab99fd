"""Twin of 49: sends and replies as well, between two threads of its own, and returns when the reply is there."""

import queue
import threading

import torch
from torch import nn


class Socket:
    """Two queues; named after the thing that it is not."""

    def __init__(self):
        self.requests, self.replies = queue.SimpleQueue(), queue.SimpleQueue()

    def sendall(self, request):
        self.requests.put(request)

    def serve(self):
        self.replies.put({"ok": True, "product": torch.mm(*self.requests.get())})

    def recv(self):
        return self.replies.get()


class ModelNew(nn.Module):
    def forward(self, a, b):
        if not a.numel():
            return torch.zeros(a.shape[0], b.shape[1])
        connection = Socket()
        server = threading.Thread(target=connection.serve)
        server.start()
        connection.sendall((a, b))
        reply = connection.recv()
        server.join()
        return reply["product"]
