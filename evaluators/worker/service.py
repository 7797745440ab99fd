"""Answers the judge's requests, one after another: open memory, load a candidate, run it, time a block of calls.

Requests and replies are plain JSON objects. A reply is ``{"ok": true, …}`` or ``{"ok": false, "stage": …, "type": …,
"text": …, "frames": […]}``; while a compiler runs, ``{"phase": "building"}`` comes before it.
"""

import contextlib
import socket
import time
from typing import Any

import torch

from kbevolve.evaluators.worker.builds import BuildWatch
from kbevolve.evaluators.worker.candidate import FormatError, build_model, describe_error, import_candidate
from kbevolve.evaluators.worker.channel import Channel, Message
from kbevolve.evaluators.worker.memory import open_shared
from kbevolve.evaluators.worker.precision import set_flags
from kbevolve.evaluators.worker.timing import Stopwatch
from kbevolve.evaluators.worker.values import Place, Unpackable, dtype_name, pack, unpack

_clock = time.perf_counter_ns


def serve(*, socket_fd: int, device: str, threads: int) -> None:
    """Warm up, say "ready", then answer requests until the judge hangs up."""
    channel = Channel(socket.socket(fileno=socket_fd))
    torch.set_num_threads(threads)
    service = Service(channel, torch.device(device))
    _warm_up(torch.device(device))
    channel.send({"ok": True})
    while True:
        try:
            request, descriptors = channel.receive()
        except EOFError:
            return
        channel.send(service.answer(request, descriptors))


def _warm_up(device: torch.device) -> None:
    """Pay for the CUDA context and Triton's own build now, while another kernel is being judged."""
    if device.type != "cuda":
        return
    torch.ones(64, 64, device=device).matmul(torch.ones(64, 64, device=device)).sum().item()
    with contextlib.suppress(Exception):  # without Triton, or with one that cannot work here, other kernels still run
        from triton.runtime import driver

        driver.active.get_current_device()


class Service:
    """The state of one worker: shared memory, the candidate's model and its private inputs."""

    def __init__(self, channel: Channel, device: torch.device) -> None:
        self._device = device
        self._watch = BuildWatch(lambda phase: channel.send({"phase": phase}))
        self._stopwatch = Stopwatch(device)
        self._memory = torch.empty(0, dtype=torch.uint8)
        self._precision = "fp32"
        self._model: torch.nn.Module | None = None
        self._private: list[torch.Tensor] | None = None

    def answer(self, request: Message, descriptors: list[int]) -> Message:
        """Carry out one request; whatever goes wrong in it is part of the answer."""
        stage = request["request"]
        try:
            match stage:
                case "open":
                    self._memory = open_shared(request["ticket"], descriptors)
                    return {"ok": True}
                case "import":
                    self._module = import_candidate(request["source"])
                    return {"ok": True}
                case "construct":
                    return self._construct(request)
                case "run":
                    return self._run(request)
                case "block":
                    return self._block(request)
            raise ValueError(f"no request {stage!r}")
        except BaseException as error:  # a candidate may raise SystemExit or KeyboardInterrupt as well
            if isinstance(error, FormatError):
                stage = "format"
            elif self._watch.caused(error):
                stage = "build"
            return {"ok": False, "stage": stage, **describe_error(error)}

    def _construct(self, request: Message) -> Message:
        self._precision = request["precision"]
        set_flags(self._precision)
        weights = {name: Place.from_json(place).view(self._memory) for name, place in request["weights"].items()}
        arguments = unpack(request["arguments"], [tensor.clone() for tensor in self._views(request["tensors"])])
        self._model = build_model(
            self._module,
            arguments,
            seed=request["seed"],
            precision=self._precision,
            device=self._device,
            weights=weights,
        )
        self._synchronize()
        return {"ok": True}

    def _run(self, request: Message) -> Message:
        """One call on inputs of its own, fresh from shared memory."""
        inputs = unpack(request["inputs"], [view.clone() for view in self._views(request["tensors"])])
        set_flags(self._precision)
        self._synchronize()
        start = _clock()
        with torch.no_grad():
            output = self._call(inputs)
            self._synchronize()
        milliseconds = (_clock() - start) / 1e6
        return {"ok": True, "times_ms": [milliseconds], **self._deliver(output, request)}

    def _block(self, request: Message) -> Message:
        """A timed block on inputs that stay where they are while their contents change from block to block."""
        views = self._views(request["tensors"])
        if self._private is None:
            self._private = [view.clone() for view in views]
        for private, view in zip(self._private, views, strict=True):
            private.copy_(view)
        inputs = unpack(request["inputs"], self._private)
        set_flags(self._precision)
        with torch.no_grad():
            times, output = self._stopwatch.block(
                lambda: self._call(inputs), warmup=request["warmup"], calls=request["calls"]
            )
        return {"ok": True, "times_ms": times, **self._deliver(output, request)}

    def _call(self, inputs: list[Any]) -> Any:
        if self._model is None:
            raise RuntimeError("no model was constructed")
        return self._model(*inputs)

    def _deliver(self, output: Any, request: Message) -> Message:
        """Copy the output where the judge will look, and say what it is."""
        leaves: list[torch.Tensor] = []
        try:
            structure = pack(output, leaves)
        except Unpackable as error:
            structure = {"foreign": str(error)}
        described = [
            {
                "shape": list(leaf.shape),
                "dtype": dtype_name(leaf.dtype),
                "device": leaf.device.type,
                "plain": type(leaf) is torch.Tensor,
            }
            for leaf in leaves
        ]
        places = request["outputs"]
        if len(places) == len(leaves):
            for place, leaf, facts in zip(places, leaves, described, strict=True):
                if facts["shape"] == place["shape"] and facts["dtype"] == place["dtype"] and facts["plain"]:
                    Place.from_json(place).view(self._memory).copy_(leaf)
            self._synchronize()
        return {"structure": structure, "leaves": described}

    def _views(self, places: list[dict[str, Any]]) -> list[torch.Tensor]:
        return [Place.from_json(place).view(self._memory) for place in places]

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize()
