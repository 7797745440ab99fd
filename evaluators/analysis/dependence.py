"""How much of the output depends on the input: could an output pass that never reads the input?

The outputs of several draws are compared one after another with the first. Three fills are tested on each: zeros, the
best constant, and one remembered output. The test is KernelBench's elementwise one, |c - r| <= t + t |r|, in closed
form: a constant passes everywhere if and only if the largest lower limit is at most the smallest upper limit. So only
two outputs are in memory at a time, for any number of draws.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from kbevolve.evaluators.correctness.truth import as_real

#: Elements compared at a time: temporaries stay in a CPU's cache, and within 0.3 GB on a GPU.
_PIECE = {"cpu": 1 << 18, "cuda": 1 << 25}
#: The mean over draws is nearer to each draw than another draw is, by this ratio of standard deviations.
_MEAN_OVER_ONE = math.sqrt(2)


@dataclass(slots=True)
class _Limits:
    """Facts about one output tensor over the draws so far."""

    smallest: float = math.inf
    largest: float = -math.inf
    #: Sums of squares of the outputs, and of their differences from the first.
    energy: float = 0.0
    change: float = 0.0
    #: Tolerance -> largest excess over it of a remembered output; <= 0 passes.
    excess: dict[float, float] = field(default_factory=dict)

    def has_constant(self, tolerance: float) -> bool:
        """Whether one number is within the tolerance of every element. The limits r -+ t (1 + |r|) grow with r."""
        lower = self.largest - tolerance * (1 + abs(self.largest))
        return lower <= self.smallest + tolerance * (1 + abs(self.smallest))


class Dependence:
    """Compares the outputs of several draws of the inputs, given one after another."""

    def __init__(self, tolerances: Sequence[float]) -> None:
        """Prepare for these elementwise tolerances (atol = rtol)."""
        self._tolerances = tuple(tolerances)
        self._first: list[torch.Tensor] = []
        self._limits: list[_Limits] = []
        #: Number of outputs so far.
        self.draws = 0
        #: Whether every element so far was finite; others are left out of all figures.
        self.finite = True

    def add(self, outputs: Sequence[torch.Tensor]) -> None:
        """Compare the output of one more draw. The first is kept, so it must not change afterwards."""
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
            KeyError: the tolerance is not one of those given to the constructor.
        """
        if all(limits.smallest > limits.largest for limits in self._limits):
            return None  # no finite number at all
        extreme = max(max(abs(limits.smallest), abs(limits.largest)) for limits in self._limits)
        if extreme <= tolerance:
            return f"zeros: no element is beyond {extreme:.2g}"
        if all(limits.has_constant(tolerance) for limits in self._limits):
            low, high = self._limits[0].smallest, self._limits[0].largest
            return f"a constant: all elements lie between {low:.6g} and {high:.6g}"
        if all(limits.excess[tolerance] <= 0 for limits in self._limits):
            return f"one remembered answer: the part that changes with the input is {self.share:.1g} of the whole"
        return None

    @property
    def share(self) -> float:
        """Part of the output that changes with the input, ||r - E r|| / ||r||: the largest over the output tensors;
        0 for an output of zeros."""
        if self.draws < 2:
            return 0.0
        # The difference of two independent draws has twice the variance of one.
        parts = (
            limits.change / (self.draws - 1) / 2 / (limits.energy / self.draws) if limits.energy else 0.0
            for limits in self._limits
        )
        return math.sqrt(max(parts, default=0.0))

    def _compare(self, mine: torch.Tensor, old: torch.Tensor, limits: _Limits) -> None:
        finite = mine.isfinite()
        if not bool(finite.all()):
            self.finite = False
            mine, old = mine[finite], old[finite]
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
            # NaN where the first output is not finite and this one is: that does not pass either.
            excess = float((distance - allowed).amax())
            limits.excess[tolerance] = max(limits.excess[tolerance], math.inf if math.isnan(excess) else excess)


def _pieces(output: torch.Tensor, first: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Flat pieces of both tensors, in step: fp32 where the dtype is no wider, else fp64."""
    flat = [as_real(tensor).reshape(-1) for tensor in (output, first)]
    narrow = flat[0].dtype in (torch.float32, torch.float16, torch.bfloat16)
    size = _PIECE[output.device.type]
    for start in range(0, flat[0].numel(), size):
        mine, old = (tensor[start : start + size].to(torch.float32 if narrow else torch.float64) for tensor in flat)
        yield mine, old
