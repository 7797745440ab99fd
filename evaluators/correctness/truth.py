"""The error of an output against the truth, which is the reference's output computed in fp64, and its acceptance.

The measure is the centred relative error E = ||c - r|| / ||r - m|| of the output c against the truth r; m is the mean
of the truth over draws of the inputs. The divisor is the part of the answer that depends on the input. So a constant
or a remembered answer has E = 1, however small its absolute error is. E also separates the precisions on any
distribution (fp32 up to 1.2e-5, TF32 and fp16 3e-4, bf16 2e-3); an elementwise tolerance does not.

E is a mean, which hides a small wrong region: at a bound of 2e-2 a tile of 64 x 64 of 4096 x 4096 could be left out.
So the worst tile T is checked too, the same quotient over RUN consecutive elements:
max ||c - r||_run / sqrt(||r - m||_run^2 + RUN * mean((r - m)^2)). The second term covers runs where the answer hardly
varies, which would otherwise be compared with their own rounding noise.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch

from kbevolve.evaluators.correctness.rule import (
    CAPS,
    POISONED,
    ROW_BOUND,
    ROW_FLOOR,
    ROW_SLACK,
    RUN,
    SLACK,
    TILE_SLACK,
)

#: Largest E of each class of precision, between the E of honest kernels (see above).
_CLASSES = (("fp64", 1e-9), ("fp32", 5e-5), ("tf32", 1.6e-3), ("half", 2e-2))
#: Rows of fewer elements are judged together: single numbers near zero are what rounding left of larger ones.
_SHORTEST_ROW = 16
#: On diminished inputs E of an fp16 product is more than this multiple of E on nominal ones (5.5 times for randn, 5.4
#: for rand); E of a TF32 product is the same on both.
_LOSS_OF_FP16 = 2.0
#: Transformed inputs are unusable where the reference's E is above this share of the cap and this multiple of E on
#: nominal inputs: rounding, in which honest kernels differ, then hides the signal.
_USABLE_SHARE = 1 / 5
_USABLE_GROWTH = 2.0
#: KernelBench v0.1's elementwise tolerance (atol = rtol).
ALLCLOSE = {"fp32": 1e-4, "tf32": 1e-4, "fp16": 1e-2, "bf16": 1e-2}
#: Below this share of the whole answer the part that depends on the input is rounding noise. E is then relative to the
#: whole answer.
_LEAST_SIGNAL = 1e-6
#: Elements compared at a time, a multiple of RUN. On CUDA the temporaries stay within 1 GB. On the CPU they stay in the
#: second-level cache and below torch's grain of 32768 elements, so that torch starts no thread pool: the other cores
#: start the next worker.
_CHUNK = {"cpu": 1 << 14, "cuda": 1 << 26}

_norm = torch.linalg.vector_norm


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedOutput:
    """The expected output for one draw of the inputs: contiguous tensors, one list item for each output tensor."""

    #: The reference computed in fp64; integers and booleans keep their dtype.
    truth: list[torch.Tensor]
    #: The reference's own output in the task's precision.
    reference: list[torch.Tensor]
    #: Whether every element of the truth is finite.
    finite: list[bool]
    #: With NaN and infinities among the inputs: which elements do not depend on those; else None. There an output may
    #: be NaN, for a kernel that multiplies by a padding of zeros is honest. What is not finite in the truth may have
    #: any value.
    independent: list[torch.Tensor] | None = None
    #: Whether each row is also compared by itself. Not beside outliers of 2^40: a scale of the whole tensor is honest.
    by_rows: bool = True

    def of_first(self, count: int) -> "ExpectedOutput":
        """The expected output of the first tensors."""
        parts = {name: getattr(self, name)[:count] for name in ("truth", "reference", "finite")}
        return replace(self, **parts, independent=self.independent[:count] if self.independent else None)

    def comparable(self, outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The outputs; where elements may have any value, they have the truth's."""
        if self.independent is None:
            return list(outputs)
        return [
            mine if mine.is_complex() else torch.where(_compared(mine, right, apart), mine, right.to(mine.dtype))
            for mine, right, apart in zip(outputs, self.truth, self.independent, strict=True)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """The error of an output: the largest over its tensors."""

    #: E; infinite where the output is not finite but the truth is. For integers and booleans: the share of elements
    #: that differ.
    error: float
    #: T, with the same special cases.
    worst_tile: float
    #: The largest error of a row as a share of what is accepted in it.
    worst_row: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Divisors and bounds of the errors on one draw, kept even where its `ExpectedOutput` is too large to keep."""

    #: ||r - m|| of each tensor; 1 for integers and booleans, whose error is already a share.
    spread: tuple[float, ...]
    #: E and T of the reference itself.
    reference_error: float
    reference_worst_tile: float
    #: Largest accepted E and T.
    bound: float
    tile_bound: float
    #: Whether more of some tensor than rounding differs from m.
    live: bool
    #: The denominator of T for each run of each tensor, fp64; empty for integers and booleans.
    run_scales: tuple[torch.Tensor, ...] = field(compare=False, repr=False)
    #: The accepted error of each row of each tensor; infinite for rows of zeros; empty as above.
    row_limits: tuple[torch.Tensor, ...] = field(compare=False, repr=False)

    def of_first(self, count: int) -> "Scale":
        """The scale of the first tensors."""
        parts = {name: getattr(self, name)[:count] for name in ("spread", "run_scales", "row_limits")}
        return replace(self, **parts)


def deviation(outputs: Sequence[torch.Tensor], expected: ExpectedOutput, scale: Scale) -> Deviation:
    """The error of an output on the draw that `expected` and `scale` belong to."""
    return _deviation(outputs, expected, scale.spread, scale.run_scales, scale.row_limits)


def accepts(scale: Scale, seen: Deviation) -> bool:
    """Whether an output is as accurate as the task's precision requires."""
    whole = seen.error <= scale.bound and math.isfinite(seen.error)
    return whole and seen.worst_tile <= scale.tile_bound and seen.worst_row <= 1


def scale_of(expected: ExpectedOutput, means: Sequence[torch.Tensor | float | None], precision: str) -> Scale:
    """The scale of one draw, with m of each tensor; None for the mean over the tensor's own elements."""
    triples = zip(expected.truth, expected.finite, means, strict=True)
    signals = [_signal(truth, finite, mean) if _fractional(truth) else (None, False) for truth, finite, mean in triples]
    runs = [each for each, _ in signals]
    spread = tuple(1.0 if each is None else float(_norm(each)) for each in runs)
    run_scales = tuple(
        torch.empty(0) if each is None else (each.square() + RUN * each.square().sum() / as_real(truth).numel()).sqrt()
        for each, truth in zip(runs, expected.truth, strict=True)
    )
    row_limits = tuple(
        (_row_limits(expected, index) if expected.by_rows else torch.tensor(math.inf))
        if _fractional(truth)
        else torch.empty(0)
        for index, truth in enumerate(expected.truth)
    )
    own = _deviation(expected.reference, expected, spread, run_scales, row_limits)
    cap = CAPS[precision] if any(map(_fractional, expected.truth)) else 0.0
    bound = max(SLACK * own.error, cap)
    return Scale(
        spread=spread,
        reference_error=own.error,
        reference_worst_tile=own.worst_tile,
        bound=bound,
        tile_bound=TILE_SLACK * max(bound, own.worst_tile),
        live=any(live for _, live in signals),
        run_scales=run_scales,
        row_limits=row_limits,
    )


def is_usable(error: float, nominal_error: float, precision: str) -> bool:
    """Whether kernels can be judged on inputs where the reference has this E, given its E on nominal inputs."""
    return error <= max(_USABLE_SHARE * CAPS[precision], _USABLE_GROWTH * nominal_error)


def classify(error: float, diminished_error: float | None, precision: str = "fp32") -> str | None:
    """The class of precision that a kernel computes in: "fp64", "fp32", "tf32", "half", or None for a wrong result.

    TF32 and fp16 round alike, so E on nominal inputs is the same for both; but fp16 keeps few bits of tiny numbers.
    A kernel that rounds nothing, such as a maximum, counts as "fp64".

    Args:
        error: E on inputs whose products have both signs. Where all products add up in one direction, a rounding that
            is always downwards, as TF32's on tensor cores, looks 60 times as large as it is.
        diminished_error: E on the same inputs after `inputs.diminished`; None where the reference is inaccurate on
            those, and fp16 is then reported as "tf32".
        precision: of the task. Half-precision inputs and outputs leave no difference between TF32 and fp16.
    """
    name = next((name for name, largest in _CLASSES if error <= largest), None)
    if name != "tf32" or precision in ("fp16", "bf16"):
        return "half" if name == "tf32" else name
    if diminished_error is not None and not diminished_error <= _LOSS_OF_FP16 * error:
        return "half"
    return name


def allclose(outputs: Sequence[torch.Tensor], expected: ExpectedOutput, precision: str) -> bool:
    """KernelBench's test against the reference's own output."""
    tolerance = ALLCLOSE[precision]
    return all(
        _close(mine, theirs, tolerance)
        for output, reference in zip(outputs, expected.reference, strict=True)
        for mine, theirs in _chunks(output, reference)
    )


def _chunks(*tensors: torch.Tensor, width: int = RUN) -> Iterator[tuple[torch.Tensor, ...]]:
    """Flat pieces of tensors of one shape, in step; each begins at a multiple of `width` elements."""
    flat = [as_real(tensor).reshape(-1) for tensor in tensors]
    size = _CHUNK[flat[0].device.type] // width * width
    for start in range(0, max(flat[0].numel(), 1), size):
        yield tuple(tensor[start : start + size] for tensor in flat)


def _deviation(
    outputs: Sequence[torch.Tensor],
    expected: ExpectedOutput,
    spread: Sequence[float],
    run_scales: Sequence[torch.Tensor],
    row_limits: Sequence[torch.Tensor],
) -> Deviation:
    error = worst_tile = worst_row = 0.0
    for index, (output, truth, size, runs, limits) in enumerate(
        zip(outputs, expected.truth, spread, run_scales, row_limits, strict=True)
    ):
        if not output.numel():
            continue
        if _fractional(truth):
            # One read for all chunks: a read for each would stall a GPU. NaN survives `amax` and the norm.
            norms = _errors(output, expected, index)
            width = _row_width(truth)
            rows = norms if width == RUN else _errors(output, expected, index, width=width)
            tensor_error, tile = float(_norm(norms)) / size, float((norms / runs).amax())
            worst_row = max(worst_row, float((rows / limits).nan_to_num(nan=math.inf, posinf=math.inf).amax()))
        else:
            differing = sum(int((mine != right).sum()) for mine, right in _chunks(output, truth))
            tensor_error = tile = differing / truth.numel()
        # `max` may drop a NaN, so NaN becomes infinity first.
        error = max(error, tensor_error if math.isfinite(tensor_error) else math.inf)
        worst_tile = max(worst_tile, tile if math.isfinite(tile) else math.inf)
    return Deviation(error=error, worst_tile=worst_tile, worst_row=worst_row)


def _errors(output: torch.Tensor, expected: ExpectedOutput, index: int, *, width: int = RUN) -> torch.Tensor:
    """||c - r|| of each `width` consecutive elements of one tensor."""
    truth, finite = expected.truth[index], expected.finite[index]
    if expected.independent is None:
        pairs = _chunks(output, truth, width=width)
        return torch.cat([_run_norms(_difference(mine, right, finite), width) for mine, right in pairs])
    found, poisoned = [], 0
    for mine, right, apart in _chunks(output, truth, expected.independent[index], width=width):
        compared = _compared(mine, right, apart)
        poisoned += int((right.isfinite() & ~compared).sum())
        found.append(_run_norms(torch.where(compared, mine - right, 0.0), width))
    return torch.cat(found) if poisoned <= POISONED * truth.numel() else torch.cat(found) + math.inf


def _row_width(truth: torch.Tensor) -> int:
    """Elements of a row: of the last axis, if they are neither too few nor so many that a run is part of one."""
    width = as_real(truth).shape[-1] if truth.ndim else 1
    return width if _SHORTEST_ROW <= width < RUN else RUN


def _row_limits(expected: ExpectedOutput, index: int) -> torch.Tensor:
    """The accepted error of each row of one tensor."""
    truth, finite = expected.truth[index], expected.finite[index]
    if not truth.numel():
        return torch.empty(0)
    width = _row_width(truth)
    sizes = torch.cat(
        [_run_norms(right if finite else _finite(right), width) for (right,) in _chunks(truth, width=width)]
    )
    own = _errors(expected.reference[index], expected, index, width=width)
    accepted = torch.maximum(ROW_BOUND * sizes, ROW_SLACK * own).clamp(min=ROW_FLOOR * math.sqrt(width))
    return torch.where(sizes > 0, accepted, math.inf)


def _compared(mine: torch.Tensor, right: torch.Tensor, independent: torch.Tensor) -> torch.Tensor:
    """Where an output is compared with the truth for inputs that are partly NaN or infinite."""
    return right.isfinite() & (mine.isfinite() | ~independent)


def _difference(mine: torch.Tensor, right: torch.Tensor, finite: bool) -> torch.Tensor:
    if finite:
        return mine - right
    # Where the truth is not finite the output must have the same value; a difference there counts as infinite.
    same = (mine == right) | (mine.isnan() & right.isnan())
    return torch.where(same & ~right.isfinite(), 0.0, mine - right)


def _signal(truth: torch.Tensor, finite: bool, mean: torch.Tensor | float | None) -> tuple[torch.Tensor, bool]:
    """||r - m|| of each run and True; where that is noise, ||r||, or the norm of ones where r is zero, and False."""
    if not truth.numel():
        return torch.ones(1, dtype=torch.float64, device=truth.device), False
    # Masking is the slow part, so it is left out where there is nothing to mask.
    numbers: Callable[[torch.Tensor], torch.Tensor] = (lambda tensor: tensor) if finite else _finite
    if mean is None:
        mean = sum(float(numbers(right).sum()) for (right,) in _chunks(truth)) / as_real(truth).numel()
    whole = torch.cat([_run_norms(numbers(right)) for (right,) in _chunks(truth)])
    pairs = _chunks(truth, mean) if isinstance(mean, torch.Tensor) else ((right, mean) for (right,) in _chunks(truth))
    centred = torch.cat([_run_norms(numbers(right - middle)) for right, middle in pairs])
    if float(_norm(centred)) > _LEAST_SIGNAL * float(_norm(whole)):
        return centred, True
    if float(_norm(whole)):
        return whole, False
    return torch.cat([_run_norms(torch.ones_like(right)) for (right,) in _chunks(truth)]), False


def _run_norms(tensor: torch.Tensor, width: int = RUN) -> torch.Tensor:
    """||x|| of each `width` consecutive elements; the last run may be shorter."""
    even = tensor.numel() // width * width
    norms: torch.Tensor = _norm(tensor[:even].view(-1, width), dim=1)
    return norms if even == tensor.numel() else torch.cat([norms, _norm(tensor[even:]).view(1)])


def all_finite(tensor: torch.Tensor) -> bool:
    """Whether a tensor holds no NaN and no infinity (one pass; `isfinite` and `all` are three)."""
    return math.isfinite(float(as_real(tensor).sum())) or all(bool(one.isfinite().all()) for (one,) in _chunks(tensor))


def _close(mine: torch.Tensor, theirs: torch.Tensor, tolerance: float) -> bool:
    if mine.dtype is torch.bool:
        return torch.equal(mine, theirs)
    # The common case in two passes instead of eight: what is within atol is within atol + rtol * |b|.
    if mine.numel() and bool((mine - theirs).abs_().amax() <= tolerance):
        return True
    return torch.allclose(mine, theirs, rtol=tolerance, atol=tolerance)


def _finite(tensor: torch.Tensor) -> torch.Tensor:
    return torch.where(tensor.isfinite(), tensor, 0.0)


def as_real(tensor: torch.Tensor) -> torch.Tensor:
    """A complex tensor as a real one with one more axis; others as they are."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def _fractional(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()
