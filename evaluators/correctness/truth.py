"""How far an output is from the truth, and whether that is accepted.

The measure is the centred relative error E = ||c - r|| / ||r - m|| of the output c against the truth r, which is the
reference computed in fp64; m is the truth's mean over draws of the inputs. Dividing by the part of the answer that
depends on the input makes a constant or a remembered answer score E = 1 however small the tolerance in absolute
terms, and tells precisions apart on any distribution (fp32 up to 1.2e-5, TF32 and fp16 3e-4, bf16 2e-3), which an
elementwise tolerance does not.

E is a mean, in which a small wrong place drowns: where 2e-2 is accepted, a tile of 64 x 64 of 4096 x 4096 may be left
out. So there is the worst tile T, the same quotient over RUN consecutive elements,
max ||c - r||_run / sqrt(||r - m||_run^2 + RUN * mean((r - m)^2)). The second term keeps runs where the answer hardly
varies from being judged by their own noise.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch

#: Accepted E by the precision that the task asks for. Each leaves room over what honest kernels measure (see above)
#: and lies below the next coarser class.
CAPS = {"fp32": 5e-5, "tf32": 2e-3, "fp16": 2e-2, "bf16": 2e-2}
#: A kernel may be this many times less accurate than the reference itself, where that is more than the cap.
SLACK = 4.0
#: Elements of a tile: one row of a large one, several of a small one.
RUN = 256
#: T may be this many times as large as the accepted E, and as the reference's own T. A tile of zeros has T = 0.7 and
#: 64 zeros 0.35, above 8 times every cap.
_TILE_SLACK = 8.0
#: Where the classes end: between what honest kernels measure (see above).
_CLASSES = (("fp64", 1e-9), ("fp32", 5e-5), ("tf32", 1.6e-3), ("half", 2e-2))
#: On diminished inputs E of an fp16 product is more than this many times E on nominal ones (5.5 for randn, 5.4 for
#: rand), while TF32's is the same.
_LOSS_OF_FP16 = 2.0
#: Where the reference uses up more than this share of the cap on transformed inputs, and much more than on nominal
#: ones, their small signal is buried in rounding that honest kernels do in their own ways.
_BEARABLE_SHARE = 1 / 5
_BEARABLE_GROWTH = 2.0
#: KernelBench v0.1's elementwise tolerance (atol = rtol).
ALLCLOSE = {"fp32": 1e-4, "tf32": 1e-4, "fp16": 1e-2, "bf16": 1e-2}
#: Below this share of the answer the part that depends on the input is rounding noise; E is then relative to the whole.
_LEAST_SIGNAL = 1e-6
#: Elements compared at a time, a multiple of RUN. On CUDA the temporaries stay within 1 GB; on the CPU in the
#: second-level cache, and below torch's grain of 32768, so that no thread pool is woken: the other cores are starting
#: the next worker.
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
class Deviation:
    """How far an output is from the truth: the worst over its tensors."""

    #: E; infinite where the output is not finite and the truth is. For integers and booleans the share of elements
    #: that differ.
    error: float
    #: T, likewise.
    worst_tile: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """What errors on one draw are measured against; it outlives an `Answer` that is too large to keep."""

    #: ||r - m|| of each tensor; 1 for integers and booleans, whose error is a share already.
    spread: tuple[float, ...]
    #: E and T of the reference itself.
    reference_error: float
    reference_worst_tile: float
    #: Largest accepted E and T.
    bound: float
    tile_bound: float
    #: The denominator of T for each run of each tensor, fp64; empty for integers and booleans.
    run_scales: tuple[torch.Tensor, ...] = field(compare=False, repr=False)


def deviation(outputs: Sequence[torch.Tensor], answer: Answer, scale: Scale) -> Deviation:
    """How far an output is from the answer to the draw that `scale` belongs to."""
    return _deviation(outputs, answer, scale.spread, scale.run_scales)


def accepts(scale: Scale, found: Deviation) -> bool:
    """Whether an output is as good as the task's precision allows."""
    return found.error <= scale.bound and found.worst_tile <= scale.tile_bound and math.isfinite(found.error)


def scale_of(answer: Answer, means: Sequence[torch.Tensor | float | None], precision: str) -> Scale:
    """The scale of one draw.

    Args:
        answer: the draw's answer.
        means: m of each tensor, elementwise or one number; None for the mean over the tensor's own elements.
        precision: decides the cap.
    """
    triples = zip(answer.truth, answer.finite, means, strict=True)
    runs = [_signal(truth, finite, mean) if _fractional(truth) else None for truth, finite, mean in triples]
    spread = tuple(1.0 if each is None else float(_norm(each)) for each in runs)
    run_scales = tuple(
        torch.empty(0) if each is None else (each.square() + RUN * each.square().sum() / _real(truth).numel()).sqrt()
        for each, truth in zip(runs, answer.truth, strict=True)
    )
    own = _deviation(answer.reference, answer, spread, run_scales)
    cap = CAPS[precision] if any(map(_fractional, answer.truth)) else 0.0
    bound = max(SLACK * own.error, cap)
    return Scale(
        spread=spread,
        reference_error=own.error,
        reference_worst_tile=own.worst_tile,
        bound=bound,
        tile_bound=_TILE_SLACK * max(bound, own.worst_tile),
        run_scales=run_scales,
    )


def is_bearable(error: float, nominal_error: float, precision: str) -> bool:
    """Whether kernels can be judged on inputs where the reference has this error, beside its error on nominal ones."""
    cap = CAPS[precision]
    return error <= max(_BEARABLE_SHARE * cap, _BEARABLE_GROWTH * nominal_error)


def classify(error: float, diminished_error: float | None, precision: str = "fp32") -> str | None:
    """The class of precision that a kernel computes in: "fp64", "fp32", "tf32", "half", or None for no rounding error.

    TF32 and fp16 round alike, so that E on ordinary inputs is the same; but fp16 keeps few bits of tiny numbers. A
    kernel that rounds nothing, such as a maximum, counts as "fp64".

    Args:
        error: E on ordinary inputs whose products do not all add up in one direction: there a rounding that is
            always downwards, as TF32's on tensor cores, looks 60 times as large as it is.
        diminished_error: E on inputs transformed by `inputs.diminished`, likewise; None where the reference does not
            bear them, and fp16 then passes for TF32.
        precision: the task's; inputs and outputs in half precision leave nothing to tell apart.
    """
    name = next((name for name, largest in _CLASSES if error <= largest), None)
    if name != "tf32" or precision in ("fp16", "bf16"):
        return "half" if name == "tf32" else name
    if diminished_error is not None and not diminished_error <= _LOSS_OF_FP16 * error:
        return "half"
    return name


def allclose(outputs: Sequence[torch.Tensor], answer: Answer, precision: str) -> bool:
    """KernelBench's test against the reference's own output."""
    tolerance = ALLCLOSE[precision]
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


def _deviation(
    outputs: Sequence[torch.Tensor], answer: Answer, spread: Sequence[float], run_scales: Sequence[torch.Tensor]
) -> Deviation:
    error = worst_tile = 0.0
    for output, truth, finite, size, runs in zip(outputs, answer.truth, answer.finite, spread, run_scales, strict=True):
        if not output.numel():
            continue
        if _fractional(truth):
            # All runs are fetched together: reading a number for each chunk would stall a GPU. NaN survives it.
            norms = torch.cat([_run_norms(_difference(mine, right, finite)) for mine, right in _chunks(output, truth)])
            tensor_error, tile = float(_norm(norms)) / size, float((norms / runs).amax())
        else:
            differing = sum(int((mine != right).sum()) for mine, right in _chunks(output, truth))
            tensor_error = tile = differing / truth.numel()
        error, worst_tile = max(error, _or_infinite(tensor_error)), max(worst_tile, _or_infinite(tile))
    return Deviation(error=error, worst_tile=worst_tile)


def _difference(mine: torch.Tensor, right: torch.Tensor, finite: bool) -> torch.Tensor:
    if finite:
        return mine - right
    # Where the truth is not finite the output must hold the same thing; a difference there counts as infinite.
    same = (mine == right) | (mine.isnan() & right.isnan())
    return torch.where(same & ~right.isfinite(), 0.0, mine - right)


def _signal(truth: torch.Tensor, finite: bool, mean: torch.Tensor | float | None) -> torch.Tensor:
    """||r - m|| of each run; ||r|| where r - m is only noise; and where r is zero, that of ones, to have a scale."""
    # Masking is the slow part, so it is left out where there is nothing to mask.
    numbers: Callable[[torch.Tensor], torch.Tensor] = (lambda tensor: tensor) if finite else _finite
    if not truth.numel():
        return torch.ones(1, dtype=torch.float64, device=truth.device)
    whole = torch.cat([_run_norms(numbers(right)) for (right,) in _chunks(truth)])
    if mean is None:
        mean = sum(float(numbers(right).sum()) for (right,) in _chunks(truth)) / _real(truth).numel()
    if isinstance(mean, torch.Tensor):
        pairs = _chunks(truth, mean)
        centred = torch.cat([_run_norms(numbers(right - middle)) for right, middle in pairs])
    else:
        centred = torch.cat([_run_norms(numbers(right - mean)) for (right,) in _chunks(truth)])
    if float(_norm(centred)) > _LEAST_SIGNAL * float(_norm(whole)):
        return centred
    if float(_norm(whole)):
        return whole
    return torch.cat([_run_norms(torch.ones_like(right)) for (right,) in _chunks(truth)])


def _run_norms(tensor: torch.Tensor) -> torch.Tensor:
    """||x|| of each RUN consecutive elements; the last ones may be fewer."""
    even = tensor.numel() // RUN * RUN
    norms: torch.Tensor = torch.linalg.vector_norm(tensor[:even].view(-1, RUN), dim=1)
    return norms if even == tensor.numel() else torch.cat([norms, _norm(tensor[even:]).view(1)])


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


def _fractional(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _or_infinite(value: float) -> float:
    return value if math.isfinite(value) else math.inf
