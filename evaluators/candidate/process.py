"""One kernel in a worker process, from the judge's side: load it, share memory with it, call it, read its outputs.

The judge times the reference through the same class and the same program, in a worker that never holds a candidate.
"""

import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from typing import Any

import torch

from kbevolve.archive.records import Trait, Verdict
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.builds.traits import traits_of
from kbevolve.evaluators.candidate.call import Call, CallCost
from kbevolve.evaluators.candidate.reported_time import milliseconds, time_of
from kbevolve.evaluators.correctness.prepared import PreparedProblem
from kbevolve.evaluators.correctness.reference import same_values
from kbevolve.evaluators.correctness.weights import Weights
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.device.gate import DeviceGate
from kbevolve.evaluators.device.memory import release_cache
from kbevolve.evaluators.feedback.failures import failure_of
from kbevolve.evaluators.feedback.form import describe_shape
from kbevolve.evaluators.rejection import Rejection, reading_a_reply
from kbevolve.evaluators.sandbox.process_table import ProcessorTime
from kbevolve.evaluators.sandbox.shared_memory import SharedMemory
from kbevolve.evaluators.sandbox.worker import Worker
from kbevolve.evaluators.worker.channel import Message
from kbevolve.evaluators.worker.values import SharedTensor

#: Time limits in seconds, for opening shared memory and writing to it (milliseconds, more on a machine that swaps) and
#: for the search in PTX (milliseconds, 0.25 s for the largest PTX that is searched).
_OPEN_SECONDS, _CODE_SECONDS = 30.0, 10.0
#: Names of compilers that run at the first call. The time limit of that call then includes `build_seconds`. Builders of
#: `torch.utils.cpp_extension` report their builds and need no entry.
_COMPILES_LATER = ("triton", "tilelang", "cutlass", "torch.compile", "inductor", "nvrtc", "_compile_kernel", "numba")
#: This byte makes a NaN of a float of any width, so an element that the kernel did not write is never right.
_POISON = 0xFF
#: Operations of one call that are read, and characters of a name.
_MOST_OPERATIONS, _LONGEST_NAME = 10_000, 1000
#: One of so many timed calls has its inputs compared afterwards, at random.
_COMPARED = 4
#: The time limit for measuring launches, in limits of a call: two calls, however long, or some more of 0.05 s together.
_LAUNCH_COST_CALLS = 3


class CandidateProcess:
    """One kernel in one worker. Every method that asks the worker raises `Rejection` for what the kernel does wrong."""

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
        #: What it holds until its worker is dead and its memory is free again.
        self.held = ExitStack()
        self._gate = gate
        self._device = device
        self._shared_memory: SharedMemory | None = None
        self._prepared = prepared
        self._settings = settings
        self._source = source
        self._wrap = wrap
        self._compiles = self.is_baseline or any(mark in source for mark in _COMPILES_LATER)
        self._called = False
        #: Whether the weights were loaded by name, so that they can be overwritten in place later.
        self.takes_weights = False

    def close(self) -> None:
        """End the worker and free its memory. May be called twice."""
        self.worker.kill()
        if self._shared_memory is not None:
            self._shared_memory.close()
        self.held.close()

    @contextmanager
    def on_device(self) -> Iterator[None]:
        """Use the device beside other kernels in their trials. The wait for it does not count against the kernel."""
        with self._gate.shared() as waited:
            self.worker.deadline += waited
            yield

    @contextmanager
    def in_trial(self) -> Iterator[None]:
        """As `on_device`, with a trial in memory; nor does the wait for room in it count."""
        started = time.monotonic()
        with self._prepared.kept.room_for_one:
            self.worker.deadline += time.monotonic() - started
            with self.on_device():
                yield

    @contextmanager
    def in_background(self) -> Iterator[None]:
        """Run beside kernels in their trials. No kernel waits for it; on a GPU it is paused while one is timed.

        The pauses do not count against it. On a CPU its compilers work on the cores on which kernels are timed, so
        there it has to be waited for.
        """
        if self._device.type == "cpu":
            with self.on_device():
                yield
            return
        began, clock = time.monotonic(), self.worker.clock
        with self._gate.in_background(self.worker):
            yield
        self.worker.deadline += time.monotonic() - began - (self.worker.clock - clock)

    @property
    def is_baseline(self) -> bool:
        """Whether PyTorch itself calls the model in one of its ways: a CUDA graph returns the same memory each time."""
        return self._wrap != "eager"

    @property
    def outputs(self) -> list[torch.Tensor]:
        """The outputs of the last call, in the judge's memory; valid until the next call."""
        return [place.view(self._memory) for place in self._prepared.output_places]

    @property
    def processor_time(self) -> ProcessorTime:
        """Of its processes so far; 0 on CUDA, where no decision uses it and reading it takes milliseconds."""
        return self.worker.processor_time if self._device.type == "cpu" else ProcessorTime(0.0, 0.0)

    def load(self) -> None:
        """Import the file and build what it asks for. This takes seconds, but no memory of the device."""
        self._ask({"request": "import", "source": self._source}, self._settings.import_seconds)

    def allocate(self) -> None:
        """Allocate the memory that it shares with the judge. Only `load` may be called before.

        Raises:
            EvaluatorError: there is not that much.
        """
        self._shared_memory = SharedMemory(self._device, self._prepared.shared_bytes)
        ticket, descriptors = self._shared_memory.ticket()
        self._ask({"request": "open", "ticket": ticket}, _OPEN_SECONDS, descriptors=descriptors)

    def release_memory(self) -> None:
        """Let the process release what torch caches there."""
        self._ask({"request": "release"}, _OPEN_SECONDS)

    def construct(self, weights: Weights) -> None:
        """Make a fresh `ModelNew` with these weights."""
        prepared = self._prepared
        self._write(list(prepared.argument_places), prepared.argument_tensors)
        request = {
            "request": "construct",
            "arguments": prepared.arguments,
            "tensors": [asdict(place) for place in prepared.argument_places],
            "weights": self._write_weights(weights),
            "seed": weights.seed,
            "precision": prepared.precision,
            "baseline": self._wrap,
            "state": list(prepared.written_state),
        }
        reply = self._ask(request, self._settings.import_seconds)
        self.takes_weights = bool(weights.tensors) and reply.get("loaded") is True
        if self.takes_weights:
            return
        if prepared.written_state:
            raise Rejection(
                Verdict.WRONG,
                f"forward() of the reference updates {', '.join(prepared.written_state)}; ModelNew needs parameters "
                "and buffers of the reference's names and shapes, and must update them alike",
            )
        if prepared.factors is not None:
            raise Rejection(
                Verdict.WRONG,
                "with the weights that a seed gives, hardly anything in the answer depends on the input, so the judge "
                "loads others by name; ModelNew needs parameters and buffers of the reference's names and shapes",
            )

    def compile_now(self) -> None:
        """A call before the trials, where trials are short of memory: what compiles for seconds holds none of it."""
        if self._compiles and not self._called and not self._prepared.kept.fit:
            self.trial_call(self._prepared.first_inputs())

    def overwrite_weights(self, weights: Weights) -> None:
        """Overwrite the weights of the model in place."""
        request = {"request": "set_weights", "weights": self._write_weights(weights)}
        self._ask(request, self._settings.import_seconds)

    def changed_state(self, weights: Weights) -> list[str]:
        """Names of the parameters and buffers that the calls so far have changed, but for those that the reference
        changes; `weights` are those that the model was constructed with."""
        places = {name: place for name, place in self._prepared.weight_places.items() if name in weights.tensors}
        self._write([], [])  # the worker must not write before the judge has read
        self._ask(
            {"request": "state", "weights": {name: asdict(place) for name, place in places.items()}}, _OPEN_SECONDS
        )
        return [
            name
            for name, place in places.items()
            if name not in self._prepared.written_state
            and not same_values(place.view(self._memory), weights.tensors[name])
        ]

    def trial_call(self, inputs: list[torch.Tensor], *, keep: bool = False) -> Call:
        """One call on copies of these inputs at new addresses; the results are in `outputs`.

        With `keep`, the process keeps what it returned, as a user does; `read_again` reads it once more later.
        """
        self._poison_outputs()
        return self._call("try", inputs, keep=keep)

    def read_again(self) -> None:
        """Read what the call with `keep` returned once more, into the first of `outputs`."""
        self._poison_outputs()
        self._write([], [])  # the worker must not write before the judge has
        self._ask(self._request("again"), self._settings.run_seconds)

    def timed_call(self, inputs: list[torch.Tensor], *, keep: bool = False) -> Call:
        """One timed call; the worker has not seen these inputs before. `keep` as in a trial."""
        return self._call("time", inputs, compare=not secrets.randbelow(_COMPARED), keep=keep)

    def _poison_outputs(self) -> None:
        for output in self.outputs:
            output.view(-1).view(torch.uint8).fill_(_POISON)

    def operations(self, inputs: list[torch.Tensor]) -> tuple[str, ...]:
        """Names of torch's operations and of launches that a call runs, as the worker reports them."""
        self._write(self._prepared.input_places, inputs)
        reply = self._ask(self._request("operations"), self._settings.run_seconds)
        with reading_a_reply():
            return tuple(str(name)[:_LONGEST_NAME] for name in reply["operations"][:_MOST_OPERATIONS])

    def profile(self, inputs: list[torch.Tensor]) -> Any:
        """What the profiler in the worker reports: untrusted data, to be checked field by field."""
        self._write(self._prepared.input_places, inputs)
        reply = self._ask(self._request("profile"), self._settings.run_seconds + self._settings.build_seconds)
        return reply.get("launches")

    def launch_cost(self, inputs: list[torch.Tensor]) -> CallCost:
        """What it costs to launch a call (`worker.launch_cost`), as the worker reports it; CUDA only."""
        self._write(self._prepared.input_places, inputs)
        asked = time.perf_counter()
        reply = self._ask(self._request("launch_cost"), _LAUNCH_COST_CALLS * self._settings.run_seconds)
        wall_ms = 1e3 * (time.perf_counter() - asked)
        with reading_a_reply():
            return CallCost(**{name: milliseconds(reply.get(name), wall_ms) for name in ("host_ms", "kernelbench_ms")})

    def traits(self) -> tuple[Trait, ...] | None:
        """The traits that the worker finds in its compiled Triton kernels; None where it has none. Never a rejection.

        The report is untrusted: a wrong one can only move the kernel to another niche. Call the kernel first, because
        Triton compiles at the first call.
        """
        with suppress(Rejection), reading_a_reply():
            return traits_of(self._ask({"request": "traits"}, _CODE_SECONDS).get("traits"))
        return None

    def _call(self, kind: str, inputs: list[torch.Tensor], **options: bool) -> Call:
        self._write(self._prepared.input_places, inputs)
        limit = self._settings.run_seconds
        if not self._called and self._compiles:
            limit += self._settings.build_seconds
        request = {**self._request(kind), **options}
        asked = time.perf_counter()
        reply = self._ask(request, limit)
        wall_ms = 1e3 * (time.perf_counter() - asked)
        self._called = True
        with reading_a_reply():
            return self._read_call(reply, asked, wall_ms, len(inputs))

    def _read_call(self, reply: Message, asked: float, wall_ms: float, inputs: int) -> Call:
        leaves = self._check_form(reply)
        changed, changes = reply.get("changed"), reply.get("changes")
        if not isinstance(changed, list) or len(changed) > inputs:
            raise Rejection(Verdict.CRASHED, "its process sent a reply without its inputs' state")
        return Call(
            ms=time_of(reply, wall_ms),
            wall_ms=wall_ms,
            asked=asked,
            changed_inputs=frozenset(index for index, flag in enumerate(changed) if flag is not False),
            aliases_input=frozenset(index for index, leaf in enumerate(leaves) if leaf.get("aliases") is not False),
            changes=tuple(str(change)[:40] for change in changes) if isinstance(changes, list) else ("no account",),
        )

    def _request(self, kind: str) -> Message:
        prepared = self._prepared
        return {
            "request": kind,
            "inputs": prepared.input_structure,
            "tensors": [asdict(place) for place in prepared.input_places],
            "outputs": [asdict(place) for place in prepared.output_places],
            "layouts": prepared.layouts,
            "written": list(prepared.written_inputs),
            "state": list(prepared.written_state),
        }

    def _check_form(self, reply: Message) -> list[dict[str, Any]]:
        """Facts about each tensor of the output. Reject an output that has not the reference's form."""
        prepared, device = self._prepared, self._memory.device.type
        expected = [
            {
                "shape": list(place.shape),
                "dtype": place.dtype,
                "device": device,
                "expanded": expanded,
                "overlaps": prepared.overlapping,
            }
            for place, expanded in zip(prepared.output_places, prepared.output_expanded, strict=True)
        ]
        leaves = reply.get("leaves")
        leaves = leaves if isinstance(leaves, list) and all(isinstance(leaf, dict) for leaf in leaves) else []
        if wrong := describe_shape(reply.get("structure"), leaves, prepared.output_structure, expected):
            raise Rejection(Verdict.WRONG, wrong)
        return leaves

    def _write_weights(self, weights: Weights) -> dict[str, Any]:
        places = self._prepared.weight_places
        self._write(list(places.values()), [weights.tensors[name] for name in places])
        return {name: asdict(place) for name, place in places.items()}

    def _write(self, places: Sequence[SharedTensor], tensors: Sequence[torch.Tensor]) -> None:
        for place, tensor in zip(places, tensors, strict=True):
            place.view(self._memory).copy_(tensor)
        if self._memory.is_cuda:
            torch.cuda.synchronize(self._memory.device)
        if not self._prepared.kept.fit:
            release_cache(self._device)  # the worker may need it now

    @property
    def _memory(self) -> torch.Tensor:
        assert self._shared_memory, "allocate() must be called before the kernel"
        return self._shared_memory.memory

    def _ask(self, request: Message, seconds: float, *, descriptors: list[int] | None = None) -> Message:
        reply = self.worker.ask(
            request, seconds=seconds, build_seconds=self._settings.build_seconds, descriptors=descriptors or ()
        )
        with reading_a_reply():
            if reply.get("ok") is not True:
                raise Rejection(*failure_of(reply, self._source))
        return reply
