"""Answers the judge's requests, one after another: open memory, load a candidate, try it, time one call of it.

Requests and replies are plain JSON objects. A reply is ``{"ok": true, …}`` or ``{"ok": false, "stage": …, "type": …,
"text": …, "frames": […]}``. Builds are requested before it by ``{"phase": "building", …}`` (`build_watch.py`).
"""

import contextlib
import ctypes
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from kbevolve.evaluators.worker.baselines import wrap
from kbevolve.evaluators.worker.build_watch import BuildWatch
from kbevolve.evaluators.worker.candidate import FormatError, build_model, describe_error, import_candidate, state_of
from kbevolve.evaluators.worker.channel import Channel, Message
from kbevolve.evaluators.worker.integrity import changes, process_state
from kbevolve.evaluators.worker.launch_cost import launch_cost
from kbevolve.evaluators.worker.memory import open_shared, release_when_short
from kbevolve.evaluators.worker.modes import set_modes
from kbevolve.evaluators.worker.outputs import Returned, dirty_free_memory, facts_of, settle
from kbevolve.evaluators.worker.precision import cpu_precisions, set_flags
from kbevolve.evaluators.worker.profiling import operations, profile
from kbevolve.evaluators.worker.ptx import triton_traits
from kbevolve.evaluators.worker.recipe import Recipe
from kbevolve.evaluators.worker.timing import Stopwatch, synchronize
from kbevolve.evaluators.worker.values import SharedTensor, dtype_name, pack, unpack

# Bound before any candidate is imported: patching torch or time later does not change them.
_clock = time.perf_counter_ns
_copy = torch.Tensor.copy_


def serve(*, socket_fd: int, device: str, threads: int, sandbox: str) -> None:
    """Attach to the GPU and report it; warm up on the first request; then answer until the judge hangs up."""
    channel = Channel(socket.socket(fileno=socket_fd))
    torch.set_num_threads(threads)
    _attach(torch.device(device))
    channel.send({"ok": True, "sandbox": sandbox})
    requests = _requests(channel)
    if next(requests, None) is None:
        return
    service = Service(channel, torch.device(device))
    _warm_up(torch.device(device))
    service.watch_triton()
    channel.send({"ok": True})
    for request, descriptors in requests:
        channel.send(service.answer(request, descriptors))


def _requests(channel: Channel) -> Iterator[tuple[Message, list[int]]]:
    with contextlib.suppress(EOFError):
        while True:
            yield channel.receive()


def _attach(device: torch.device) -> None:
    """Initialise the GPU's driver, half of the cost of a start. Without a context that disturbs no measurement.

    Torch would create a context, too, so the driver is called directly.
    """
    if device.type == "cuda":
        with contextlib.suppress(OSError):  # torch reports the cause better
            ctypes.CDLL("libcuda.so.1").cuInit(0)


def _warm_up(device: torch.device) -> None:
    """Create the CUDA context and let Triton compile for itself, while another kernel is judged.

    cuBLAS is left out: few kernels call it, and it occupies the driver, which starts one process at a time, for 0.1 s.
    """
    if device.type != "cuda":
        return
    torch.ones(1, device=device).sum().item()
    with contextlib.suppress(Exception):  # without a working Triton other kernels still run
        from triton.runtime import driver

        driver.active.get_current_device()


class Service:
    """The state of one worker: shared memory, the candidate's model and its private inputs."""

    def __init__(self, channel: Channel, device: torch.device) -> None:
        self._device = device
        self._builds = BuildWatch(channel, self._synchronize)
        self._stopwatch = Stopwatch(device)
        self._memory = torch.empty(0, dtype=torch.uint8)
        self._precision = "fp32"
        self._model: torch.nn.Module | None = None
        self._forward: Callable[..., Any] | None = None
        self._private: list[torch.Tensor] | None = None
        #: The state that forward() changes, as it was constructed: every call begins with it.
        self._initial: dict[str, torch.Tensor] = {}
        #: Tensors that the last trial returned, to be delivered again after the next one.
        self._kept: list[torch.Tensor] = []
        self._before: dict[str, Any] = {}

    def watch_triton(self) -> None:
        """Report Triton's compiling from now on, when the warm-up has imported it."""
        self._builds.watch_triton()

    def answer(self, request: Message, descriptors: list[int]) -> Message:
        """Carry out one request; an error of the candidate is part of the answer."""
        try:
            return self._carry_out(request, descriptors)
        finally:
            self._builds.return_to_device()

    def _carry_out(self, request: Message, descriptors: list[int]) -> Message:
        stage = request["request"]
        try:
            match stage:
                case "open":
                    self._memory = open_shared(request["ticket"], descriptors)
                    return {"ok": True}
                case "release":
                    torch.cuda.empty_cache()
                    return {"ok": True}
                case "import":
                    self._before = process_state()
                    self._module = import_candidate(request["source"])
                    return {"ok": True}
                case "construct":
                    return self._construct(request)
                case "set_weights":
                    return self._set_weights(request)
                case "state":
                    return self._state(request)
                case "try":
                    reply = self._try(request)
                    release_when_short(self._device)
                    return reply
                case "again":
                    return self._again(request)
                case "time":
                    return self._time(request)
                case "profile":
                    return self._profile(request)
                case "launch_cost":
                    return self._launch_cost(request)
                case "operations":
                    return self._operations(request)
                case "traits":
                    return {"ok": True, "traits": triton_traits()}
                case "recipe":
                    recipe = Recipe(precision=request["precision"], device=self._device)
                    return {"ok": True, **recipe.evaluate(**request["task"])}
            raise ValueError(f"no request {stage!r}")
        except BaseException as error:  # a candidate may raise SystemExit or KeyboardInterrupt as well
            if isinstance(error, FormatError):
                stage = "format"
            elif self._builds.caused(error):
                stage = "build"
            return {"ok": False, "stage": stage, **describe_error(error)}

    def _construct(self, request: Message) -> Message:
        self._precision = request["precision"]
        set_flags(self._precision)
        self._model = None  # frees its memory first
        arguments = unpack(request["arguments"], [tensor.clone() for tensor in self._views(request["tensors"])])
        self._model, loaded = build_model(
            self._module,
            arguments,
            seed=request["seed"],
            precision=self._precision,
            device=self._device,
            weights=self._weights(request),
        )
        self._forward = wrap(self._model, request["baseline"])
        own = state_of(self._model)
        self._initial = {name: own[name].clone() for name in request["state"] if name in own}
        self._synchronize()
        return {"ok": True, "loaded": loaded}

    def _set_weights(self, request: Message) -> Message:
        """Other weights in the same tensors, as after an optimiser's step."""
        assert self._model is not None
        own = state_of(self._model)
        with torch.no_grad():
            for name, tensor in self._weights(request).items():
                _copy(own[name], tensor)
                if name in self._initial:
                    _copy(self._initial[name], tensor)
        self._synchronize()
        return {"ok": True}

    def _state(self, request: Message) -> Message:
        """The weights as they are now, written where the judge put them."""
        assert self._model is not None
        own = state_of(self._model)
        for name, place in self._weights(request).items():
            _copy(place, own[name])
        self._synchronize()
        return {"ok": True}

    def _try(self, request: Message) -> Message:
        """One call on its own inputs at new addresses, while the free memory holds no earlier result."""
        views = self._views(request["tensors"])
        mine = [view.clone() for view in views]
        inputs = unpack(request["inputs"], mine)
        self._prepare_call()
        dirty_free_memory(request["outputs"], self._device)
        self._synchronize()
        start = _clock()
        with torch.no_grad():
            output = self._call(inputs, request)
            self._synchronize()
            milliseconds = (_clock() - start) / 1e6
            delivered = self._deliver(output, request, mine)
        if request["keep"]:
            self._kept = output.leaves
        return {"ok": True, "times_ms": [milliseconds], **delivered, **self._effects(mine, views, inputs, request)}

    def _again(self, request: Message) -> Message:
        """The tensors of the call that was kept, as they are now."""
        self._copy_out(request["outputs"], self._kept)
        self._kept = []
        self._synchronize()
        return {"ok": True}

    def _time(self, request: Message) -> Message:
        """One timed call on inputs that keep their addresses while their contents change from call to call."""
        views = self._views(request["tensors"])
        if self._private is None:
            self._private = [view.clone() for view in views]
        private = self._private
        inputs = unpack(request["inputs"], private)
        self._prepare_call()

        def deliver(output: Returned) -> Message:
            delivered = self._deliver(output, request, private)
            if request["keep"]:
                self._kept = output.leaves
            before = views if request["compare"] else private
            return {**delivered, **self._effects(private, before, inputs, request)}

        with torch.no_grad():
            milliseconds, delivered = self._stopwatch.time(
                lambda: self._call(inputs, request), buffers=private, contents=views, deliver=deliver
            )
        return {"ok": True, "times_ms": [milliseconds], **delivered}

    def _profile(self, request: Message) -> Message:
        mine = [view.clone() for view in self._views(request["tensors"])]
        inputs = unpack(request["inputs"], mine)
        self._prepare_call()
        with torch.no_grad():
            self._call(inputs, request)
            return {"ok": True, "launches": profile(lambda: self._call(inputs, request))}

    def _launch_cost(self, request: Message) -> Message:
        assert self._forward is not None
        forward = self._forward
        inputs = unpack(request["inputs"], [view.clone() for view in self._views(request["tensors"])])
        self._prepare_call()
        with torch.no_grad():
            return {"ok": True, **launch_cost(lambda: forward(*inputs), self._device)}

    def _operations(self, request: Message) -> Message:
        assert self._forward is not None
        forward, inputs = self._forward, unpack(request["inputs"], self._views(request["tensors"]))
        self._prepare_call()
        with torch.no_grad():
            return {"ok": True, "operations": operations(lambda: forward(*inputs))}

    def _prepare_call(self) -> None:
        """Set what an earlier call may have changed: flags, floating-point modes, the model's state."""
        set_flags(self._precision)
        set_modes()
        self._before["precision flags"] = cpu_precisions()
        if self._initial:
            assert self._model is not None
            own = state_of(self._model)
            for name, tensor in self._initial.items():
                _copy(own[name], tensor)

    def _call(self, inputs: list[Any], request: Message) -> Returned:
        if self._forward is None:
            raise RuntimeError("no model was constructed")
        return settle(self._forward(*inputs), request["layouts"])

    def _deliver(self, output: Returned, request: Message, inputs: list[torch.Tensor]) -> Message:
        """Copy the output to the shared memory, with the inputs and the state that the reference changes."""
        assert self._model is not None
        state = state_of(self._model) if request["state"] else {}
        written = [inputs[index] for index in request["written"]]
        written += [state[name] for name in request["state"] if name in state]
        self._copy_out(request["outputs"], [*output.settled, *written])
        self._synchronize()
        leaves = facts_of(output.leaves, inputs)
        leaves += [{**facts, "aliases": False, "overlaps": False} for facts in facts_of(written, [])]
        return {"structure": output.structure, "leaves": leaves}

    def _copy_out(self, places: list[dict[str, Any]], leaves: list[torch.Tensor]) -> None:
        for place, leaf in zip(places, leaves, strict=False):
            plain = type(leaf) is torch.Tensor and not leaf.__dict__ and leaf.layout is torch.strided
            if plain and list(leaf.shape) == place["shape"] and dtype_name(leaf.dtype) == place["dtype"]:
                _copy(SharedTensor(**place).view(self._memory), leaf)

    def _effects(self, mine: list[torch.Tensor], before: list[torch.Tensor], inputs: Any, request: Message) -> Message:
        """What a call left changed: which inputs (all, where a container of them is), and what of this process."""
        found: list[torch.Tensor] = []
        moved = repr(pack(inputs, found)) != repr(request["inputs"]) or [*map(id, found)] != [*map(id, mine)]
        changed = [moved or not _same(tensor, theirs) for tensor, theirs in zip(mine, before, strict=True)]
        return {"changed": changed, "changes": changes(self._before, self._precision, self._device)}

    def _weights(self, request: Message) -> dict[str, torch.Tensor]:
        return {name: SharedTensor(**place).view(self._memory) for name, place in request["weights"].items()}

    def _views(self, places: list[dict[str, Any]]) -> list[torch.Tensor]:
        return [SharedTensor(**place).view(self._memory) for place in places]

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            synchronize()


def _same(mine: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Bit for bit, so that NaN equals itself."""
    if mine.shape != theirs.shape:
        return False
    if not mine.numel():
        return True
    return torch.equal(mine, theirs) or torch.equal(
        mine.contiguous().view(-1).view(torch.uint8), theirs.contiguous().view(-1).view(torch.uint8)
    )
