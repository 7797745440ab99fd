"""A kernel in its worker, as the judge sees it: lend memory, load, try, time, and look at what it wrote.

The reference is timed through this same class by the same program, in a worker that never holds a candidate.
"""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch

from kbevolve.archive.records import Trait, Verdict
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.builds.traits import traits_of
from kbevolve.evaluators.correctness.prepared import PreparedProblem, Weights
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.device.gate import DeviceGate
from kbevolve.evaluators.feedback.failures import failure_of
from kbevolve.evaluators.feedback.mismatch import describe_shape
from kbevolve.evaluators.rejection import Rejection
from kbevolve.evaluators.sandbox.process_table import ProcessorTime
from kbevolve.evaluators.sandbox.shared_memory import SharedMemory
from kbevolve.evaluators.sandbox.worker_pool import Worker
from kbevolve.evaluators.worker.channel import Message
from kbevolve.evaluators.worker.values import SharedTensor

#: Seconds to open shared memory: milliseconds in fact, more on a machine that swaps.
_OPEN_SECONDS = 30.0
#: Seconds to search some texts of PTX: milliseconds, and a quarter of a second for the largest that are looked at.
_CODE_SECONDS = 10.0
#: What betrays a compiler at the first call, which then gets the time of a build as well. Builders of
#: `torch.utils.cpp_extension` announce themselves and need no mark.
_COMPILES_WHEN_CALLED = ("triton", "torch.compile", "inductor", "nvrtc", "_compile_kernel", "numba")
#: Poison: as a float of any width it is NaN, so an element that nobody wrote is never right.
_POISON = 0xFF
#: A GPU's clock and the judge's may differ by this share; a call cannot have taken longer than the judge waited.
_CLOCK_SLACK = 1.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What came back of one call."""

    #: Milliseconds of the call as the worker tells.
    ms: float
    #: Milliseconds by the judge's clock from the request to the reply, or until the judge had read the output.
    wall_ms: float
    #: Moment of the request (`time.perf_counter`).
    asked: float
    #: Whether an input was changed (told of trials only).
    changed_input: bool
    #: Whether an output shares memory with an input.
    aliases_input: bool
    #: What the candidate left changed in its process, by short names (`worker.integrity`).
    changes: tuple[str, ...]


class RemoteKernel:
    """One kernel in one worker. Methods raise `Rejection` for whatever the kernel does wrong."""

    def __init__(
        self,
        worker: Worker,
        device: Device,
        prepared: PreparedProblem,
        settings: EvaluationSettings,
        source: str,
        *,
        gate: DeviceGate,
        wrap: str = "eager",
    ) -> None:
        """`wrap`: how the model is called (`worker.baselines`); anything but "eager" is for the reference only."""
        self.worker = worker
        self._gate = gate
        self._device = device
        self._shared_memory: SharedMemory | None = None
        self._prepared = prepared
        self._settings = settings
        self._source = source
        self._wrap = wrap
        self._compiles = wrap != "eager" or any(mark in source for mark in _COMPILES_WHEN_CALLED)
        self._called = False
        #: Whether the weights were loaded by name, so that they can be changed in place later.
        self.takes_weights = False

    @contextmanager
    def on_device(self) -> Iterator[None]:
        """Use the device beside other kernels that are tried. Waiting for it is not the kernel's fault."""
        with self._gate.shared() as waited:
            self.worker.deadline += waited
            yield

    @property
    def outputs(self) -> list[torch.Tensor]:
        """What it wrote last, in the judge's memory; valid until the next call."""
        return [place.view(self._memory) for place in self._prepared.output_places]

    @property
    def processor_time(self) -> ProcessorTime:
        """Of its processes so far; 0 on CUDA: nothing rests on it there, and it takes milliseconds."""
        return self.worker.processor_time if self._device.type == "cpu" else ProcessorTime(0.0, 0.0)

    def load(self) -> None:
        """Import the file, and build what it asks for: that takes seconds, but no memory of the device."""
        self._ask({"request": "import", "source": self._source}, self._settings.import_seconds)

    def lend(self) -> None:
        """Allocate the memory that it shares with the judge; before anything else is asked than to load.

        Raises:
            EvaluatorError: there is not that much.
        """
        self._shared_memory = SharedMemory(self._device, self._prepared.shared_bytes)
        ticket, descriptors = self._shared_memory.ticket()
        self._ask({"request": "open", "ticket": ticket}, _OPEN_SECONDS, descriptors=descriptors)

    def take_back(self) -> None:
        """Free that memory, when the worker is dead. May be called twice."""
        if self._shared_memory is not None:
            self._shared_memory.close()

    def construct(self, weights: Weights) -> None:
        """A fresh `ModelNew` with these weights."""
        prepared = self._prepared
        self._write(list(prepared.argument_places), prepared.argument_tensors)
        request = {
            "request": "construct",
            "arguments": prepared.arguments,
            "tensors": [place.to_json() for place in prepared.argument_places],
            "weights": self._write_weights(weights),
            "seed": weights.seed,
            "precision": prepared.precision,
            "wrap": self._wrap,
        }
        reply = self._ask(request, self._settings.import_seconds)
        self.takes_weights = bool(weights.tensors) and reply.get("loaded") is True

    def reweigh(self, weights: Weights) -> None:
        """Change the weights of the model in place."""
        request = {"request": "reweigh", "weights": self._write_weights(weights)}
        self._ask(request, self._settings.import_seconds)

    def attempt(self, inputs: list[torch.Tensor]) -> Call:
        """One call on copies of these inputs at new addresses; what it wrote is in `outputs`."""
        for output in self.outputs:
            output.view(-1).view(torch.uint8).fill_(_POISON)
        return self._call("try", inputs)

    def timed_call(self, inputs: list[torch.Tensor]) -> Call:
        """One timed call; nothing of these inputs has been in the worker's reach before."""
        return self._call("time", inputs)

    def profile(self, inputs: list[torch.Tensor]) -> Any:
        """What the profiler in the worker tells: data from an untrusted process, to be checked field by field."""
        self._write(self._prepared.input_places, inputs)
        seconds = self._settings.run_seconds + self._settings.build_seconds
        return self._ask(self._request("profile"), seconds).get("launches")

    def traits(self) -> tuple[Trait, ...] | None:
        """What the worker says shows in its compiled Triton kernels; None where it has none. Never a rejection.

        Untrusted: it moves a kernel to another niche at most. To be asked when the kernel has been called, which is
        when Triton compiles.
        """
        with suppress(Rejection):
            return traits_of(self._ask({"request": "code"}, _CODE_SECONDS).get("shows"))
        return None

    def _call(self, kind: str, inputs: list[torch.Tensor]) -> Call:
        self._write(self._prepared.input_places, inputs)
        limit = self._settings.run_seconds
        if not self._called and self._compiles:
            limit += self._settings.build_seconds
        request = self._request(kind)
        asked = time.perf_counter()
        reply = self._ask(request, limit)
        wall_ms = 1e3 * (time.perf_counter() - asked)
        self._called = True
        leaves = self._check_form(reply)
        changed, changes = reply.get("changed"), reply.get("changes")
        return Call(
            ms=_time_of(reply, wall_ms),
            wall_ms=wall_ms,
            asked=asked,
            changed_input=isinstance(changed, list) and any(flag is not False for flag in changed),
            aliases_input=any(leaf.get("aliases") is not False for leaf in leaves),
            changes=tuple(str(change)[:40] for change in changes) if isinstance(changes, list) else ("no account",),
        )

    def _request(self, kind: str) -> Message:
        prepared = self._prepared
        return {
            "request": kind,
            "inputs": prepared.input_structure,
            "tensors": [place.to_json() for place in prepared.input_places],
            "outputs": [place.to_json() for place in prepared.output_places],
        }

    def _check_form(self, reply: Message) -> list[dict[str, Any]]:
        """Facts about each tensor of the output, which has the reference's form."""
        prepared, device = self._prepared, self._memory.device.type
        expected = [
            {"shape": list(place.shape), "dtype": place.dtype, "device": device, "expanded": expanded}
            for place, expanded in zip(prepared.output_places, prepared.output_expanded, strict=True)
        ]
        leaves = _leaves(reply)
        wrong = describe_shape(reply.get("structure"), leaves, prepared.output_structure, expected)
        if wrong:
            raise Rejection(Verdict.WRONG, wrong)
        return leaves

    def _write_weights(self, weights: Weights) -> dict[str, Any]:
        places = self._prepared.weight_places
        self._write(list(places.values()), [weights.tensors[name] for name in places])
        return {name: place.to_json() for name, place in places.items()}

    def _write(self, places: Sequence[SharedTensor], tensors: Sequence[torch.Tensor]) -> None:
        for place, tensor in zip(places, tensors, strict=True):
            place.view(self._memory).copy_(tensor)
        if self._memory.is_cuda:
            torch.cuda.synchronize(self._memory.device)

    @property
    def _memory(self) -> torch.Tensor:
        assert self._shared_memory is not None, "memory is lent before a kernel is called"
        return self._shared_memory.memory

    def _ask(self, request: Message, seconds: float, *, descriptors: list[int] | None = None) -> Message:
        reply = self.worker.ask(
            request, seconds=seconds, build_seconds=self._settings.build_seconds, descriptors=descriptors or ()
        )
        if reply.get("ok") is not True:
            raise Rejection(*failure_of(reply, self._source))
        return reply


def _time_of(reply: Message, wall_ms: float) -> float:
    times = reply.get("times_ms")
    if not isinstance(times, list) or len(times) != 1:
        raise Rejection(Verdict.CRASHED, "its process sent a reply without the time that was asked for")
    value = times[0]
    if not isinstance(value, float) or not math.isfinite(value) or not 0 < value <= _CLOCK_SLACK * wall_ms:
        raise Rejection(Verdict.REFUSED, "not accepted: its process told a time that cannot be")
    return value


def _leaves(reply: Message) -> list[dict[str, Any]]:
    leaves = reply.get("leaves")
    if not isinstance(leaves, list) or not all(isinstance(leaf, dict) for leaf in leaves):
        return []
    return leaves
