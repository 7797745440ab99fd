"""What came of the children that were made in one way, as the few numbers that a belief needs."""

import math
from dataclasses import dataclass, replace
from typing import Self

#: Gains further out say nothing more than these do: a first repair of a broken parent may be a factor of a thousand.
LARGEST_GAIN = math.log(8.0)


def clipped(gain: float) -> float:
    """A gain (log of a child's speedup over its parent) without what is too good or too bad to mean anything."""
    return min(max(gain, -LARGEST_GAIN), LARGEST_GAIN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Counts and sums; fractions of a child once some of it is forgotten."""

    #: Children that were valid, and others.
    valid: float = 0.0
    invalid: float = 0.0
    #: Sum of the valid ones' gains (logs), and of their squares.
    gains: float = 0.0
    squares: float = 0.0

    @property
    def children(self) -> float:
        """All children."""
        return self.valid + self.invalid

    @property
    def mean(self) -> float:
        """Mean gain of the valid ones; 0 when there is none."""
        return self.gains / self.valid if self.valid else 0.0

    def with_child(self, gain: float | None) -> Self:
        """After one more child; None for one that was not valid."""
        if gain is None:
            return replace(self, invalid=self.invalid + 1)
        gain = clipped(gain)
        return replace(self, valid=self.valid + 1, gains=self.gains + gain, squares=self.squares + gain * gain)

    def faded(self, share: float) -> Self:
        """What is left when all but `share` of it is forgotten."""
        return replace(
            self,
            valid=self.valid * share,
            invalid=self.invalid * share,
            gains=self.gains * share,
            squares=self.squares * share,
        )
