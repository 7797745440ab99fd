"""The inspection of one problem: a dozen calls of its reference, and a flag with its reason for each finding."""

import copy
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
from kbevolve.evaluators.analysis.rates import percent
from kbevolve.evaluators.analysis.roofline import CLASSES, Roofline
from kbevolve.evaluators.correctness.inputs import nominal
from kbevolve.evaluators.correctness.reference import Reference, preserved_state, same_values
from kbevolve.evaluators.correctness.truth import ALLCLOSE
from kbevolve.evaluators.correctness.visibility import VISIBLE, accepted_share, live_weights, share_words
from kbevolve.evaluators.device.devices import Device, resources
from kbevolve.evaluators.device.memory import free_bytes
from kbevolve.evaluators.worker.precision import flags_for
from kbevolve.evaluators.worker.values import pack, unpack

#: The loosest of KernelBench's elementwise tolerances in published results.
_LOOSEST = 1e-2
#: Draws of the inputs; more for an output so small that a few draws may agree by chance.
_DRAWS = 4
_DRAWS_OF_FEW = 12
_FEW_ELEMENTS = 1024
#: Seeds of a card are not secret: no kernel runs on their inputs.
_INPUT_SEED = 1000
WEIGHT_SEED = 2000
#: The part of the output that changes with the input is weak below this.
_WEAK = 1e-3
#: Two outputs for the same input may differ by this much (||r - r'|| / ||r||): atomic additions have any order.
_ROUNDING = {"fp32": 1e-5, "tf32": 1e-3, "fp16": 1e-2, "bf16": 1e-2}
#: Milliseconds below which the launch of a GPU kernel is most of its time.
_LAUNCH_MS = 0.05
#: Most timed calls of the eager reference, and the seconds after which no further call starts.
_TIMED_CALLS = 7
_TIMED_SECONDS = 0.5
#: Memory that gradients may need, as a multiple of all inputs, weights and outputs. Without it the search is omitted.
_GRADIENT_COPIES = 8


class Inspection:
    """Inspects one problem."""

    def __init__(self, problem: Problem, reference: Reference, device: Device, precision: str) -> None:
        self._problem = problem
        self._reference = reference
        self._device = device
        self._precision = precision
        self._structure, self._inputs = reference.inputs(_INPUT_SEED, nominal)
        self._weights = dict(reference.model.named_parameters())
        #: Whether a call in evaluation mode draws random numbers.
        self._draws_numbers = False
        self._flags: dict[str, str] = {}

    def card(self, roofline: Roofline) -> ProblemCard:
        """Make all calls, the most informative first. The reference's state is the same afterwards."""
        with preserved_state(self._reference.model):
            output = self._reference.returned(self._structure, self._inputs)
            self._call_in_tf32(output)
            live = self._try_fills(output)
            if live is None:
                return self._card(roofline, output)
            with self._reference.weights(live):
                return self._card(roofline, self._reference.returned(self._structure, self._inputs))

    def _card(self, roofline: Roofline, output: list[torch.Tensor]) -> ProblemCard:
        self._call_again(output)
        self._train()
        operations = count_operations(lambda: self._forward(self._copies()))
        self._find_dead_code(operations, output)
        output_bytes = _bytes(output)
        del output
        eager_ms = self._time()
        if self._device.type == "cuda" and eager_ms < _LAUNCH_MS:
            self._flags["launch-bound"] = (
                f"eager takes {eager_ms * 1e3:.0f} µs a call: launches are most of it, and times are noisy"
            )
        zeros = self._zero_shares()
        savings = [
            *operations.redundant[:2],
            *(f"{percent(share)} of input {i} are zeros" for i, share in zeros.items()),
        ]
        if savings:
            self._flags["reducible"] = "; ".join(savings)
        needed = sum(round(_bytes([tensor]) * (1 - zeros.get(i, 0.0))) for i, tensor in enumerate(self._inputs))
        state = self._reference.model.state_dict().values()
        moved = needed + _bytes(state) + output_bytes
        return ProblemCard(
            problem=self._problem.id,
            device=self._device.fingerprint,
            precision=self._precision,
            flags=dict(self._flags),
            input_bytes=_bytes(self._inputs),
            weight_bytes=_bytes(state),
            output_bytes=output_bytes,
            flops=operations.total,
            peaks={"copy": roofline.bytes_per_second, **roofline.operations_per_second},
            resources=resources(self._device),
            required_flops=operations.required,
            eager_ms=eager_ms,
            memory_ms=moved / roofline.bytes_per_second * 1e3,
            roofline_ms={
                name: roofline.roofline_ms(name, moved_bytes=moved, operations=operations.required) for name in CLASSES
            },
            floor_ms={
                # Eager is honest: where it beats the floor, the rates were measured on a busy device.
                name: min(eager_ms, roofline.floor_ms(name, written_bytes=output_bytes, operations=operations.certain))
                for name in CLASSES
            },
        )

    def _try_fills(self, output: list[torch.Tensor]) -> Mapping[str, torch.Tensor] | None:
        """Try answers that ignore the input. Returns the weights that kernels are judged with if not the model's."""
        found = self._dependence(self._reference, output)
        strict = ALLCLOSE[self._precision]
        fills = [found.fill(strict), found.fill(_LOOSEST)]
        share = found.share
        if not found.finite:
            self._flags["not-finite"] = "some elements of the reference's own answer are NaN or infinite"
        if any(fills) or share < _WEAK:
            fills, share = self._confirm(fills, share)
        live = self._try_weights() if fills[0] or share < _WEAK else None
        if "degenerate" in self._flags:
            self._flags["degenerate"] += f"; it passes as {fills[0]}" if fills[0] else ""
        elif fills[0]:
            self._flags["low-signal"] = f"at KernelBench's tolerance an answer passes as {fills[0]}"
        elif fills[1]:
            self._flags["low-signal"] = f"at half precision's tolerance an answer passes as {fills[1]}"
        elif share < _WEAK:
            self._flags["low-signal"] = f"only {share:.1g} of the answer changes with the input"
        return live

    def _try_weights(self) -> Mapping[str, torch.Tensor] | None:
        """Whether the judge sees what changes with the input, with these weights or with others."""
        accepted = accepted_share(self._reference)
        live = None
        if found := live_weights(self._reference, accepted):
            factors, now, live = found
            low, high = min(factors.values(), default=1.0), max(factors.values(), default=1.0)
            size = f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"
            self._flags["scaled-weights"] = (
                f"{share_words(accepted)}; kernels are judged with random weights times {size}, and others than the "
                "defaults"
            )
            accepted = now
        if accepted > VISIBLE:
            self._flags["degenerate"] = f"the judge cannot see what ignores the input: {share_words(accepted)}"
        return live

    def _confirm(self, fills: list[str | None], share: float) -> tuple[list[str | None], float]:
        """Keep what holds for other weights, too: one unlucky draw of weights is no property of the problem."""
        if not self._reference.model.state_dict():
            return fills, share
        other = Reference(self._problem, self._device, self._precision, weight_seed=WEIGHT_SEED + 1)
        structure, inputs = other.inputs(_INPUT_SEED, nominal)
        again = self._dependence(other, other.returned(structure, inputs))
        tolerances = (ALLCLOSE[self._precision], _LOOSEST)
        both = [mine if again.fill(limit) else None for mine, limit in zip(fills, tolerances, strict=True)]
        return both, max(share, again.share)

    def _dependence(self, reference: Reference, first: list[torch.Tensor]) -> Dependence:
        found = Dependence((ALLCLOSE[self._precision], _LOOSEST))
        found.add(first)
        few = sum(tensor.numel() for tensor in first) < _FEW_ELEMENTS
        for draw in range(1, _DRAWS_OF_FEW if few else _DRAWS):
            structure, inputs = reference.inputs(_INPUT_SEED + draw, nominal)
            output = reference.returned(structure, inputs)
            if [tensor.shape for tensor in output] != [tensor.shape for tensor in first]:
                raise EvaluatorError(
                    f"{self._problem.name}: the shape of the answer changes from draw to draw; get_inputs() must fix it"
                )
            found.add(output)
        return found

    def _call_again(self, output: list[torch.Tensor]) -> None:
        """Call twice on the same input, and check whether that changed the input."""
        state = _random_state(self._device)
        inputs = self._copies()
        again = self._forward(inputs)
        self._draws_numbers = not torch.equal(state, _random_state(self._device))
        pairs = enumerate(zip(inputs, self._inputs, strict=True))
        changed = [index for index, pair in pairs if not same_values(*pair)]
        if changed:
            self._flags["in-place"] = f"forward changes {' and '.join(f'input {index}' for index in changed)}"
        difference = max((_difference(*pair) for pair in zip(again, output, strict=True)), default=0.0)
        if self._draws_numbers and difference:  # a state that decays to nothing may be random
            self._flags["random"] = "the answer draws random numbers even in evaluation mode"
            self._flags.pop("tf32-reference", None)
        if difference > _ROUNDING[self._precision]:
            self._flags["nondeterministic"] = f"the same input twice gives answers that differ by {difference:.1g}"

    def _call_in_tf32(self, output: list[torch.Tensor]) -> None:
        """KernelBench compares with convolutions in TF32, PyTorch's default: is an answer in fp32 wrong there?"""
        if self._device.type != "cuda" or self._precision != "fp32":
            return
        with flags_for("fp32"):
            torch.backends.cudnn.allow_tf32 = True
            theirs = self._forward(self._copies())
        limit = ALLCLOSE["fp32"]
        pairs = [(mine, other) for mine, other in zip(output, theirs, strict=True) if mine.is_floating_point()]
        if any(not torch.allclose(mine, other, rtol=limit, atol=limit, equal_nan=True) for mine, other in pairs):
            largest = max(float((mine - other).abs().nan_to_num().max()) for mine, other in pairs if mine.numel())
            self._flags["tf32-reference"] = (
                f"with TF32 in convolutions, PyTorch's default, the answer differs by {largest:.2g}; KernelBench "
                f"compares with that at {limit:g}, and refuses answers in fp32"
            )

    def _train(self) -> None:
        """KernelBench never calls eval(); readers of its figures should know where that makes a difference."""
        try:
            model = copy.deepcopy(self._reference.model).train()
            state = _random_state(self._device)
            self._forward(self._copies(), model=model)
        except Exception:  # it cannot be copied, or cannot train on these sizes: no user runs it so
            return
        if not self._draws_numbers and not torch.equal(state, _random_state(self._device)):
            self._flags["dropout"] = "in training mode the answer is random; it is judged in evaluation mode"

    def _find_dead_code(self, operations: Operations, output: list[torch.Tensor]) -> None:
        dead = []
        needed = _GRADIENT_COPIES * (_bytes(self._inputs) + _bytes(self._weights.values()) + _bytes(output))
        if needed < free_bytes(self._device):
            dead = dead_tensors(
                lambda tensors: self._forward([tensor.clone() for tensor in tensors]), self._inputs, self._weights
            )
        more = f" and {len(dead) - 4} more" if len(dead) > 4 else ""
        words = [f"the answer does not depend on {', '.join(dead[:4])}{more}"] if dead else []
        if operations.unused:
            count = "one product" if operations.unused == 1 else f"{operations.unused} products"
            words.append(f"the result of {count} is never used")
        if words:
            self._flags["dead-code"] = "; ".join(words)

    def _zero_shares(self) -> Mapping[int, float]:
        """Index -> share of zeros, for floating-point inputs with many zeros, in blocks or single."""
        shares = {
            index: max(1 - int(tensor.count_nonzero()) / tensor.numel(), zero_tile_share(tensor))
            for index, tensor in enumerate(self._inputs)
            if tensor.is_floating_point() and tensor.numel()
        }
        return {index: share for index, share in shares.items() if share > ZERO_SHARE}

    def _time(self) -> float:
        """Median milliseconds of a call after a first one."""
        inputs = self._copies()

        def call() -> None:
            self._reference.model(*unpack(self._structure, inputs))

        call()
        times: list[float] = []
        started = time.perf_counter()
        while len(times) < _TIMED_CALLS and (not times or time.perf_counter() - started < _TIMED_SECONDS):
            for fresh, original in zip(inputs, self._inputs, strict=True):
                fresh.copy_(original)  # a reference that works in place would otherwise time other inputs
            times.append(_milliseconds(call, self._device))
        return statistics.median(times)

    def _forward(self, inputs: Sequence[torch.Tensor], model: torch.nn.Module | None = None) -> list[torch.Tensor]:
        """The output tensors; the call may change the inputs."""
        tensors: list[torch.Tensor] = []
        pack((model or self._reference.model)(*unpack(self._structure, inputs)), tensors)
        return tensors

    def _copies(self) -> list[torch.Tensor]:
        return [tensor.clone() for tensor in self._inputs]


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


def _difference(one: torch.Tensor, other: torch.Tensor) -> float:
    if torch.equal(one, other):
        return 0.0
    if not one.is_floating_point():
        return float((one != other).float().mean())
    distance, whole = torch.linalg.vector_norm(one - other), torch.linalg.vector_norm(other)
    return float(distance.nan_to_num() / whole.nan_to_num().clamp_min(torch.finfo(whole.dtype).tiny))


def _bytes(tensors: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
