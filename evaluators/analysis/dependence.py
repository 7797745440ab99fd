"""How much of an answer depends on the input: could one that never reads it pass?

Answers to several draws of the inputs are looked at one after another and compared with the first. Three fills are
tried on each: zeros, the best constant, and one remembered answer. The test is KernelBench's own elementwise one,
|c - r| <= t + t |r|, in closed form: a constant passes everywhere just when the largest of all lower limits is no
larger than the smallest of all upper ones. So two answers are alive at a time, whatever the number of draws.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

#: Elements looked at at a time: temporaries stay in the cache of a CPU and within 0.3 GB on a GPU.
_PIECE = {"cpu": 1 << 18, "cuda": 1 << 25}
#: A mean over draws lies nearer to all of them than one of them does, by the ratio of standard deviations.
_MEAN_OVER_ONE = math.sqrt(2)


@dataclass(slots=True)
class _Limits:
    """What is known of one tensor of the output."""

    smallest: float = math.inf
    largest: float = -math.inf
    #: Sums of squares of the answers, and of their differences from the first.
    energy: float = 0.0
    change: float = 0.0
    #: Largest excess of a remembered answer over the tolerance; <= 0 passes.
    excess: dict[float, float] = field(default_factory=dict)


class Dependence:
    """Compares the answers to several draws of the inputs, given one after another."""

    def __init__(self, tolerances: Sequence[float]) -> None:
        """Prepare for fills at these elementwise tolerances (atol = rtol)."""
        self._tolerances = tuple(tolerances)
        self._first: list[torch.Tensor] = []
        self._limits: list[_Limits] = []
        #: Number of answers so far.
        self.draws = 0
        #: Whether every element so far was finite; others are left out of all figures.
        self.finite = True

    def add(self, outputs: Sequence[torch.Tensor]) -> None:
        """The answer to one more draw; the first is kept, so it must not be changed afterwards."""
        if not self._first:
            self._first = list(outputs)
            self._limits = [_Limits(excess=dict.fromkeys(self._tolerances, -math.inf)) for _ in outputs]
        self.draws += 1
        for output, first, limits in zip(outputs, self._first, self._limits, strict=True):
            for mine, old in _pieces(output, first):
                self._compare(mine, old, limits)

    def fill(self, tolerance: float) -> str | None:
        """What passes on every draw without reading the input, in words; None when nothing does.

        Raises:
            KeyError: not one of the tolerances that were prepared for.
        """
        if all(limits.smallest > limits.largest for limits in self._limits):
            return None  # no finite number at all
        extreme = max(max(abs(limits.smallest), abs(limits.largest)) for limits in self._limits)
        if extreme <= tolerance:
            return f"zeros: no element is beyond {extreme:.2g}"
        if all(_room(limits, tolerance) for limits in self._limits):
            low, high = self._limits[0].smallest, self._limits[0].largest
            return f"a constant: all elements lie between {low:.6g} and {high:.6g}"
        if all(limits.excess[tolerance] <= 0 for limits in self._limits):
            return f"one remembered answer: the part that changes with the input is {self.share:.1g} of the whole"
        return None

    @property
    def share(self) -> float:
        """The part of the answer that changes with the input, against the whole: ||r - E r|| / ||r||, the most over
        the output's tensors; 0 for an answer that is all zeros."""
        return max((self._share(limits) for limits in self._limits), default=0.0)

    def _share(self, limits: _Limits) -> float:
        if self.draws < 2 or not limits.energy:
            return 0.0
        # Two independent draws differ by twice the variance.
        variance = limits.change / (self.draws - 1) / 2
        return math.sqrt(variance / (limits.energy / self.draws))

    def _compare(self, mine: torch.Tensor, old: torch.Tensor, limits: _Limits) -> None:
        finite = mine.isfinite()
        if not bool(finite.all()):
            self.finite = False
            mine, old = mine[finite], old[finite]
            if not mine.numel():
                return
        if not mine.numel():
            return
        low, high = torch.aminmax(mine)
        limits.smallest, limits.largest = min(limits.smallest, float(low)), max(limits.largest, float(high))
        limits.energy += float(torch.linalg.vector_norm(mine)) ** 2
        if self.draws == 1:
            return
        distance = (mine - old).abs_()
        limits.change += float(torch.linalg.vector_norm(distance)) ** 2
        for tolerance in self._tolerances:
            allowed = mine.abs().mul_(tolerance).add_(tolerance).mul_(_MEAN_OVER_ONE)
            # NaN where the first answer was not finite and this one is: that does not pass either.
            excess = float((distance - allowed).amax())
            limits.excess[tolerance] = max(limits.excess[tolerance], math.inf if math.isnan(excess) else excess)


def _room(limits: _Limits, tolerance: float) -> bool:
    """Whether one number is within the tolerance of every element. The limits r -+ t (1 + |r|) grow with r."""
    lower = limits.largest - tolerance * (1 + abs(limits.largest))
    upper = limits.smallest + tolerance * (1 + abs(limits.smallest))
    return lower <= upper


def _pieces(output: torch.Tensor, first: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Both tensors side by side, flat, as fp32 or, where they are wider or whole numbers, fp64."""
    flat = [_real(tensor).reshape(-1) for tensor in (output, first)]
    narrow = flat[0].dtype in (torch.float32, torch.float16, torch.bfloat16)
    size = _PIECE[output.device.type]
    for start in range(0, flat[0].numel(), size):
        mine, old = (tensor[start : start + size].to(torch.float32 if narrow else torch.float64) for tensor in flat)
        yield mine, old


def _real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
