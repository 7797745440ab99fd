"""How far an output is from the truth, and whether that is accepted.

The measure is the centred relative error E = ||c - r|| / ||r - m|| of the output c against the truth r, which is the
reference computed in fp64; m is the truth's mean over draws of the inputs. Dividing by the part of the answer that
depends on the input makes a constant or a remembered answer score E = 1 however small the tolerance in absolute
terms, and tells precisions apart on any distribution (fp32 up to 1.2e-5, TF32 and fp16 3e-4, bf16 2e-3), which an
elementwise tolerance does not.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

#: Accepted E by the precision that the task asks for. Each leaves room over what honest kernels measure (see above)
#: and lies below the next coarser class.
CAPS = {"fp32": 5e-5, "tf32": 2e-3, "fp16": 2e-2, "bf16": 2e-2}
#: A kernel may be this many times less accurate than the reference itself, where that is more than the cap.
SLACK = 4.0
#: Where the classes of `precision_class` end; between the measured figures above.
_CLASSES = (("fp64", 1e-9), ("fp32", 5e-5), ("tf32", 1e-3), ("half", 2e-2))
#: KernelBench v0.1's elementwise tolerance (atol = rtol).
_ALLCLOSE = {"fp32": 1e-4, "tf32": 1e-4, "fp16": 1e-2, "bf16": 1e-2}
#: Below this share of the answer the part that depends on the input is rounding noise; E is then relative to the whole.
_LEAST_SIGNAL = 1e-6
#: Elements compared at a time. On CUDA the temporaries stay within 1 GB; on the CPU in the second-level cache, and
#: below torch's grain of 32768, so that no thread pool is woken: the other cores are starting the next worker.
_CHUNK = {"cpu": 1 << 14, "cuda": 1 << 26}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The right output for one draw of the inputs; lists are over the output's tensors, all contiguous."""

    #: In fp64, or the output's own dtype for integers and booleans.
    truth: list[torch.Tensor]
    #: The reference's own output in the task's precision.
    reference: list[torch.Tensor]
    #: Whether every element of the truth is finite.
    finite: list[bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """What errors on one draw are measured against; it outlives an `Answer` that is too large to keep."""

    #: ||r - m|| of each tensor; 0 for one that holds no numbers with a fraction.
    spread: tuple[float, ...]
    #: E of the reference itself.
    reference_error: float
    #: Largest accepted E.
    bound: float


def centred_errors(outputs: Sequence[torch.Tensor], answer: Answer, spread: Sequence[float]) -> list[float]:
    """E of each tensor of an output; infinite where it is not finite and the truth is.

    For integers and booleans it is the share of elements that differ.
    """
    pairs = zip(outputs, answer.truth, answer.finite, spread, strict=True)
    return [_error(output, truth, finite, scale) for output, truth, finite, scale in pairs]


def scale_of(answer: Answer, means: Sequence[torch.Tensor | None], precision: str) -> Scale:
    """The scale of one draw; without a mean over draws, m is the mean over a tensor's own elements."""
    triples = zip(answer.truth, answer.finite, means, strict=True)
    spread = tuple(_spread(tensor, finite, mean) for tensor, finite, mean in triples)
    own = max(centred_errors(answer.reference, answer, spread))
    cap = CAPS[precision] if any(tensor.is_floating_point() for tensor in answer.truth) else 0.0
    return Scale(spread=spread, reference_error=own, bound=max(SLACK * own, cap))


def precision_class(error: float) -> str | None:
    """The class that an error falls in, None when it is no rounding error at all."""
    return next((name for name, largest in _CLASSES if error <= largest), None)


def allclose(outputs: Sequence[torch.Tensor], answer: Answer, precision: str) -> bool:
    """KernelBench's test against the reference's own output."""
    tolerance = _ALLCLOSE[precision]
    return all(
        _close(mine, theirs, tolerance)
        for output, reference in zip(outputs, answer.reference, strict=True)
        for mine, theirs in _chunks(output, reference)
    )


def _chunks(*tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Equal-shaped tensors side by side in flat pieces."""
    flat = [_real(tensor).reshape(-1) for tensor in tensors]
    size = _CHUNK[flat[0].device.type]
    for start in range(0, max(flat[0].numel(), 1), size):
        yield tuple(tensor[start : start + size] for tensor in flat)


def _error(output: torch.Tensor, truth: torch.Tensor, finite: bool, spread: float) -> float:
    if not output.numel():
        return 0.0
    if not truth.is_floating_point() and not truth.is_complex():
        differing = sum(int((mine != right).sum()) for mine, right in _chunks(output, truth))
        return differing / truth.numel()
    # One number for each piece, fetched together: reading each at once would stall a GPU. NaN and infinity survive it.
    norms = [_distance(mine, right, finite) for mine, right in _chunks(output, truth)]
    distance = float(_norm(torch.stack(norms)))
    return distance / spread if math.isfinite(distance) else math.inf


def _distance(mine: torch.Tensor, right: torch.Tensor, finite: bool) -> torch.Tensor:
    if finite:
        return _norm(mine - right)
    # Where the truth is not finite the output must hold the same thing; a difference there counts as infinite.
    same = (mine == right) | (mine.isnan() & right.isnan())
    return _norm(torch.where(same & ~right.isfinite(), 0.0, mine - right))


def _spread(truth: torch.Tensor, finite: bool, mean: torch.Tensor | None) -> float:
    if not truth.is_floating_point() and not truth.is_complex():
        return 0.0
    # Masking is the slow part, so it is left out where there is nothing to mask.
    numbers: Callable[[torch.Tensor], torch.Tensor] = (lambda tensor: tensor) if finite else _finite
    whole = math.hypot(*(float(_norm(numbers(right))) for (right,) in _chunks(truth)))
    if mean is None:
        centre = sum(float(numbers(right).sum()) for (right,) in _chunks(truth)) / max(_real(truth).numel(), 1)
        spread = math.hypot(*(float(_norm(numbers(right - centre))) for (right,) in _chunks(truth)))
    else:
        spread = math.hypot(*(float(_norm(numbers(right - middle))) for right, middle in _chunks(truth, mean)))
    # An answer of zeros has no scale at all: then E is the root mean square of what came instead.
    return spread if spread > _LEAST_SIGNAL * whole else whole or math.sqrt(max(truth.numel(), 1))


def all_finite(tensor: torch.Tensor) -> bool:
    """Whether a tensor holds no NaN and no infinity (one pass; `isfinite` and `all` are three)."""
    return math.isfinite(float(_real(tensor).sum())) or bool(tensor.isfinite().all())


def _close(mine: torch.Tensor, theirs: torch.Tensor, tolerance: float) -> bool:
    # The common case in two passes instead of eight: within atol everywhere is within atol + rtol * |b|.
    if mine.numel() and bool((mine - theirs).abs_().amax() <= tolerance):
        return True
    return torch.allclose(mine, theirs, rtol=tolerance, atol=tolerance)


def _norm(tensor: torch.Tensor) -> torch.Tensor:
    norm: torch.Tensor = torch.linalg.vector_norm(tensor)
    return norm


def _finite(tensor: torch.Tensor) -> torch.Tensor:
    return torch.where(tensor.isfinite(), tensor, 0.0)


def _real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
