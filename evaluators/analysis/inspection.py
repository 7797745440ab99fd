"""Looking at one problem: a dozen calls of its reference, and what they say about it, each finding with its reason."""

import copy
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from kbevolve.archive.records import ProblemCard
from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.problem import Problem
from kbevolve.evaluators.analysis.dependence import Dependence
from kbevolve.evaluators.analysis.liveness import dead_tensors
from kbevolve.evaluators.analysis.operations import ZERO_SHARE, Operations, count_operations, zero_tile_share
from kbevolve.evaluators.analysis.roofline import CLASSES, Roofline
from kbevolve.evaluators.correctness.inputs import nominal
from kbevolve.evaluators.correctness.reference import Reference
from kbevolve.evaluators.correctness.truth import ALLCLOSE
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.worker.values import pack, unpack

#: The loosest of KernelBench's elementwise tolerances that results were published with.
_LOOSEST = 1e-2
#: Draws of the inputs; more where the output is so small that a few draws may agree by chance.
_DRAWS = 4
_DRAWS_OF_FEW = 12
_FEW_ELEMENTS = 1024
#: Seeds of a card are no secret: no kernel is ever run on them.
_INPUT_SEED = 1000
WEIGHT_SEED = 2000
#: Parts of the answer that change with the input, below which it is rounding noise, and below which it is weak.
_NOISE = 1e-6
_WEAK = 1e-3
#: The same input twice may differ by this much (||r - r'|| / ||r||): atomic additions come in any order.
_ROUNDING = {"fp32": 1e-5, "tf32": 1e-3, "fp16": 1e-2, "bf16": 1e-2}
#: Milliseconds below which the launch of a GPU kernel is most of its time.
_LAUNCH_MS = 0.05
#: Timed calls of the eager reference at most, and seconds after which no more are made.
_TIMED_CALLS = 7
_TIMED_SECONDS = 0.5
#: What gradients may need, as a multiple of all inputs, weights and outputs; more than is free means: do not look.
_GRADIENT_COPIES = 8


class Inspection:
    """One problem being looked at."""

    def __init__(self, problem: Problem, reference: Reference, device: Device, precision: str) -> None:
        self._problem = problem
        self._reference = reference
        self._device = device
        self._precision = precision
        self._structure, self._inputs = reference.inputs(_INPUT_SEED, nominal)
        self._weights = dict(reference.model.named_parameters())
        self._flags: dict[str, str] = {}

    def card(self, roofline: Roofline) -> ProblemCard:
        """Everything found out, the calls that tell most first."""
        answer = self._reference.output(self._structure, self._inputs)[1]
        self._try_fills(answer)
        self._call_again(answer)
        self._train()
        operations = self._count()
        self._find_dead_code(operations, answer)
        output_bytes = _bytes(answer)
        del answer
        eager_ms = self._time()
        if self._device.type == "cuda" and eager_ms < _LAUNCH_MS:
            self._flags["launch-bound"] = (
                f"eager takes {eager_ms * 1e3:.0f} µs a call: launches are most of it, and times are noisy"
            )
        needed = self._needed_bytes()
        self._find_savings(operations)
        state = self._reference.model.state_dict().values()
        moved = needed + _bytes(state) + output_bytes
        # A reference that computes what algebra saves is no goal.
        worked = operations.certain if "reducible" in self._flags else operations.total
        return ProblemCard(
            problem=self._problem.id,
            device=self._device.fingerprint,
            precision=self._precision,
            flags=dict(self._flags),
            input_bytes=_bytes(self._inputs),
            weight_bytes=_bytes(state),
            output_bytes=output_bytes,
            flops=operations.total,
            eager_ms=eager_ms,
            memory_ms=moved / roofline.bytes_per_second * 1e3,
            roofline_ms={name: roofline.roofline_ms(name, moved_bytes=moved, operations=worked) for name in CLASSES},
            floor_ms={
                # Eager itself is honest: where it beats the floor, the rates were measured on a bad day.
                name: min(eager_ms, roofline.floor_ms(name, written_bytes=output_bytes, operations=operations.certain))
                for name in CLASSES
            },
        )

    def _try_fills(self, answer: list[torch.Tensor]) -> None:
        found = self._dependence(self._reference, answer)
        strict = ALLCLOSE[self._precision]
        fills = [found.fill(strict), found.fill(_LOOSEST)]
        share = found.share
        if not found.finite:
            self._flags["not-finite"] = "some elements of the reference's own answer are NaN or infinite"
        if any(fills) or share < _WEAK:
            fills, share = self._confirm(fills, share)
        if fills[0]:
            self._flags["degenerate"] = f"an answer that ignores the input passes as {fills[0]}"
        elif share < _NOISE:
            self._flags["degenerate"] = (
                f"the part of the answer that changes with the input is {share:.1g} of it, below rounding"
            )
        elif fills[1]:
            self._flags["low-signal"] = f"at half precision's tolerance an answer passes as {fills[1]}"
        elif share < _WEAK:
            self._flags["low-signal"] = f"only {share:.1g} of the answer changes with the input"

    def _confirm(self, fills: list[str | None], share: float) -> tuple[list[str | None], float]:
        """What holds for other weights, too: one unlucky draw of weights is no property of the problem."""
        if not self._reference.model.state_dict():
            return fills, share
        other = Reference(self._problem, self._device, self._precision, weight_seed=WEIGHT_SEED + 1)
        structure, inputs = other.inputs(_INPUT_SEED, nominal)
        again = self._dependence(other, other.output(structure, inputs)[1])
        tolerances = (ALLCLOSE[self._precision], _LOOSEST)
        both = [mine if again.fill(limit) else None for mine, limit in zip(fills, tolerances, strict=True)]
        return both, max(share, again.share)

    def _dependence(self, reference: Reference, first: list[torch.Tensor]) -> Dependence:
        found = Dependence((ALLCLOSE[self._precision], _LOOSEST))
        found.add(first)
        few = sum(tensor.numel() for tensor in first) < _FEW_ELEMENTS
        for draw in range(1, _DRAWS_OF_FEW if few else _DRAWS):
            structure, inputs = reference.inputs(_INPUT_SEED + draw, nominal)
            found.add(_matching(reference.output(structure, inputs)[1], first, self._problem.name))
        return found

    def _call_again(self, answer: list[torch.Tensor]) -> None:
        """The same input twice, and whether that changed the input."""
        state = _random_state(self._device)
        given = [tensor.clone() for tensor in self._inputs]
        again = self._forward(given)
        if not torch.equal(state, _random_state(self._device)):
            self._flags["random"] = "the answer draws random numbers even in evaluation mode"
        changed = [i for i, (one, other) in enumerate(zip(given, self._inputs, strict=True)) if not _same(one, other)]
        if changed:
            self._flags["in-place"] = f"forward changes {' and '.join(f'input {index}' for index in changed)}"
        difference = max((_difference(*pair) for pair in zip(again, answer, strict=True)), default=0.0)
        if difference > _ROUNDING[self._precision]:
            self._flags["nondeterministic"] = f"the same input twice gives answers that differ by {difference:.1g}"

    def _train(self) -> None:
        """KernelBench never calls eval(); where that makes a difference, a reader of its figures should know."""
        try:
            model = copy.deepcopy(self._reference.model).train()
            state = _random_state(self._device)
            self._forward([tensor.clone() for tensor in self._inputs], model=model)
        except Exception:  # it cannot be copied, or cannot train on these sizes: then nobody runs it so
            return
        if "random" not in self._flags and not torch.equal(state, _random_state(self._device)):
            self._flags["random"] = "in training mode the answer is random (dropout); it is judged in evaluation mode"

    def _count(self) -> Operations:
        given = [tensor.clone() for tensor in self._inputs]
        return count_operations(lambda: self._reference.model(*unpack(self._structure, given)))

    def _find_dead_code(self, operations: Operations, answer: list[torch.Tensor]) -> None:
        dead = []
        if self._affordable(
            _GRADIENT_COPIES * (_bytes(self._inputs) + _bytes(self._weights.values()) + _bytes(answer))
        ):
            dead = dead_tensors(
                lambda tensors: self._forward([tensor.clone() for tensor in tensors]), self._inputs, self._weights
            )
        words = [f"the answer does not depend on {_listed(dead)}"] if dead else []
        if operations.unused:
            count = "one product" if operations.unused == 1 else f"{operations.unused} products"
            words.append(f"the result of {count} is never used")
        if words:
            self._flags["dead-code"] = "; ".join(words)

    def _find_savings(self, operations: Operations) -> None:
        words = list(operations.redundant[:2])
        words += [f"{share:.0%} of input {index} are zeros" for index, share in self._empty_inputs().items()]
        if words:
            self._flags["reducible"] = "; ".join(words)

    def _needed_bytes(self) -> int:
        """Bytes of the inputs without the zeros of those that are largely zero."""
        empty = self._empty_inputs()
        return sum(round(_bytes([tensor]) * (1 - empty.get(index, 0.0))) for index, tensor in enumerate(self._inputs))

    def _empty_inputs(self) -> Mapping[int, float]:
        """Share of zeros of the floating-point inputs that are largely zero, in blocks or one by one."""
        shares = {
            index: max(1 - int(tensor.count_nonzero()) / tensor.numel(), zero_tile_share(tensor))
            for index, tensor in enumerate(self._inputs)
            if tensor.is_floating_point() and tensor.numel()
        }
        return {index: share for index, share in shares.items() if share > ZERO_SHARE}

    def _time(self) -> float:
        """Median milliseconds of a warm call."""
        given = [tensor.clone() for tensor in self._inputs]

        def call() -> None:
            self._reference.model(*unpack(self._structure, given))

        call()
        times: list[float] = []
        started = time.perf_counter()
        while len(times) < _TIMED_CALLS and (not times or time.perf_counter() - started < _TIMED_SECONDS):
            for fresh, original in zip(given, self._inputs, strict=True):
                fresh.copy_(original)  # a reference that works in place would time something else each time
            times.append(_milliseconds(call, self._device))
        return statistics.median(times)

    def _forward(self, given: Sequence[torch.Tensor], model: torch.nn.Module | None = None) -> list[torch.Tensor]:
        """Tensors of the answer to inputs that may be changed by it."""
        tensors: list[torch.Tensor] = []
        pack((model or self._reference.model)(*unpack(self._structure, given)), tensors)
        return tensors

    def _affordable(self, size: int) -> bool:
        if self._device.type == "cuda":
            return size < torch.cuda.mem_get_info(self._device.index)[0]
        return size < os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _matching(answer: list[torch.Tensor], first: list[torch.Tensor], name: str) -> list[torch.Tensor]:
    if [tensor.shape for tensor in answer] != [tensor.shape for tensor in first]:
        raise EvaluatorError(f"{name}: the shape of the answer changes from draw to draw; get_inputs() must fix it")
    return answer


def _milliseconds(call: Callable[[], Any], device: Device) -> float:
    if device.type == "cuda":
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize(device.index)
        return float(begin.elapsed_time(end))
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e3


def _random_state(device: Device) -> torch.Tensor:
    state = torch.get_rng_state()
    return state if device.type == "cpu" else torch.cat([state, torch.cuda.get_rng_state(device.index)])


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one, other) or torch.equal(one.nan_to_num(), other.nan_to_num())


def _difference(one: torch.Tensor, other: torch.Tensor) -> float:
    if torch.equal(one, other):
        return 0.0
    if not one.is_floating_point():
        return float((one != other).float().mean())
    distance, whole = torch.linalg.vector_norm(one - other), torch.linalg.vector_norm(other)
    return float(distance.nan_to_num() / whole.nan_to_num().clamp_min(torch.finfo(whole.dtype).tiny))


def _bytes(tensors: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:4])
    return f"{shown} and {len(names) - 4} more" if len(names) > 4 else shown
