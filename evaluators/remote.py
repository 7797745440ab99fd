"""A kernel in its worker, as the judge sees it: lend memory, load, run, time, and look at what it wrote.

The reference is timed through this same class by the same program, in a worker that never holds a candidate.
"""

import math
import time
from typing import Any

import torch

from kbevolve.archive.records import Verdict
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.arena import Arena
from kbevolve.evaluators.messages import failure_of
from kbevolve.evaluators.mismatch import describe_shape
from kbevolve.evaluators.prepared import PreparedProblem
from kbevolve.evaluators.rejection import Rejection
from kbevolve.evaluators.worker.channel import Message
from kbevolve.evaluators.workers import Worker

#: Seconds to open shared memory: milliseconds in fact, more on a machine that swaps.
_OPEN_SECONDS = 30.0
#: What betrays a compiler at the first call, which then gets the time of a build as well. Builders of
#: `torch.utils.cpp_extension` announce themselves and need no mark.
_COMPILES_WHEN_CALLED = ("triton", "torch.compile", "inductor", "nvrtc", "_compile_kernel", "numba")
#: Poison: as a float of any width it is NaN, so an element that nobody wrote is never right.
_POISON = 0xFF
#: A GPU's clock and the judge's may differ by this share; calls cannot have taken longer than the judge waited.
_CLOCK_SLACK = 1.01


class RemoteKernel:
    """One kernel in one worker. Methods raise `Rejection` for whatever the kernel does wrong."""

    def __init__(
        self, worker: Worker, arena: Arena, prepared: PreparedProblem, settings: EvaluationSettings, source: str
    ) -> None:
        self._worker = worker
        self._arena = arena
        self._prepared = prepared
        self._settings = settings
        self._source = source
        self._called = False

    @property
    def outputs(self) -> list[torch.Tensor]:
        """What it wrote last, in the judge's memory; valid until the next call."""
        return [place.view(self._arena.memory) for place in self._prepared.output_places]

    def load(self) -> None:
        """Import the file and construct `ModelNew` with the reference's weights."""
        settings, prepared = self._settings, self._prepared
        ticket, descriptors = self._arena.ticket()
        self._ask({"request": "open", "ticket": ticket}, _OPEN_SECONDS, descriptors=descriptors)
        self._ask({"request": "import", "source": self._source}, settings.import_seconds)
        for name, place in prepared.weight_places.items():
            place.view(self._arena.memory).copy_(prepared.weights[name])
        for place, tensor in zip(prepared.argument_places, prepared.argument_tensors, strict=True):
            place.view(self._arena.memory).copy_(tensor)
        _synchronize(self._arena.memory)
        request = {
            "request": "construct",
            "arguments": prepared.arguments,
            "tensors": [place.to_json() for place in prepared.argument_places],
            "weights": {name: place.to_json() for name, place in prepared.weight_places.items()},
            "seed": prepared.weight_seed,
            "precision": prepared.precision,
        }
        self._ask(request, settings.import_seconds)

    def run(self, inputs: list[torch.Tensor]) -> float:
        """One call on these inputs; milliseconds as the worker tells."""
        return self._call({"request": "run"}, inputs, calls=1, collect=True)[0]

    def block(self, inputs: list[torch.Tensor], *, warmup: int, calls: int, collect: bool = True) -> list[float]:
        """A timed block; milliseconds of each call. With `collect` the last call's output is in `outputs`."""
        return self._call({"request": "block", "warmup": warmup, "calls": calls}, inputs, calls=calls, collect=collect)

    def _call(self, request: Message, inputs: list[torch.Tensor], *, calls: int, collect: bool) -> list[float]:
        prepared = self._prepared
        for place, tensor in zip(prepared.input_places, inputs, strict=True):
            place.view(self._arena.memory).copy_(tensor)
        if collect:
            for output in self.outputs:
                output.view(-1).view(torch.uint8).fill_(_POISON)
        _synchronize(self._arena.memory)
        places = [place.to_json() for place in prepared.output_places]
        request |= {
            "inputs": prepared.input_structure,
            "tensors": [place.to_json() for place in prepared.input_places],
            "outputs": places if collect else [],
        }
        limit = self._settings.run_seconds
        if not self._called and any(mark in self._source for mark in _COMPILES_WHEN_CALLED):
            limit += self._settings.build_seconds
        asked = time.perf_counter()
        reply = self._ask(request, limit)
        wall_ms = 1e3 * (time.perf_counter() - asked)
        self._called = True
        if collect:
            device = self._arena.memory.device.type
            expected = [{"shape": p["shape"], "dtype": p["dtype"], "device": device} for p in _as_lists(places)]
            wrong = describe_shape(reply.get("structure"), _leaves(reply), prepared.output_structure, expected)
            if wrong:
                raise Rejection(Verdict.WRONG, wrong)
        return _times(reply, calls, wall_ms)

    def _ask(self, request: Message, seconds: float, *, descriptors: list[int] | None = None) -> Message:
        reply = self._worker.ask(
            request, seconds=seconds, build_seconds=self._settings.build_seconds, descriptors=descriptors or ()
        )
        if reply.get("ok") is not True:
            raise Rejection(*failure_of(reply))
        return reply


def _times(reply: Message, calls: int, wall_ms: float) -> list[float]:
    times = reply.get("times_ms")
    if not isinstance(times, list) or len(times) != calls:
        raise Rejection(Verdict.CRASHED, "its process sent a reply without the times that were asked for")
    plausible = all(isinstance(value, float) and math.isfinite(value) and value > 0 for value in times)
    if not plausible or sum(times) > _CLOCK_SLACK * wall_ms:
        raise Rejection(Verdict.CRASHED, "its process told times that cannot be")
    return times


def _leaves(reply: Message) -> list[dict[str, Any]]:
    leaves = reply.get("leaves")
    if not isinstance(leaves, list) or not all(isinstance(leaf, dict) for leaf in leaves):
        return []
    return leaves


def _as_lists(places: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Places as they look after the wire, where a tuple is a list."""
    return [{**place, "shape": list(place["shape"])} for place in places]


def _synchronize(memory: torch.Tensor) -> None:
    if memory.is_cuda:
        torch.cuda.synchronize(memory.device)
