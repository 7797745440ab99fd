"""What is believed of one way to make children: how often it works, and what it gains when it does.

Two parts, because they fail apart: a technique whose children mostly do not compile may pay well when one does.
Whether a child is valid is a Beta distribution, the gain of a valid one (log of its speedup over its parent) a normal
whose mean and spread are unknown, with their conjugate prior, the normal-inverse-gamma (Murphy 2007, "Conjugate
Bayesian analysis of the Gaussian distribution", section 3).
"""

import math
from dataclasses import dataclass, replace
from random import Random
from statistics import NormalDist
from typing import Self

_NORMAL = NormalDist()
#: Larger gains say nothing more: the first repair of a broken parent may be a factor of a thousand.
LARGEST_GAIN = math.log(8.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Results of the children of one arm, as the numbers that a belief needs; fractions once some are forgotten."""

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
        gain = min(max(gain, -LARGEST_GAIN), LARGEST_GAIN)
        return replace(self, valid=self.valid + 1, gains=self.gains + gain, squares=self.squares + gain * gain)

    def faded(self, share: float) -> Self:
        """What is left when all but `share` of it is forgotten: what paid early pays no longer, the parents have it."""
        return replace(
            self,
            valid=self.valid * share,
            invalid=self.invalid * share,
            gains=self.gains * share,
            squares=self.squares * share,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """Parameters of the posterior; the defaults are a prior worth two children."""

    #: Beta: valid children and others, counted on from a half each in the prior.
    valid: float = 1.0
    invalid: float = 1.0
    #: Normal-inverse-gamma: mean gain, and how many children it is worth; shape and scale of the variance. A gain of a
    #: tenth is usual, one of three tenths not rare.
    gain: float = 0.0
    weight: float = 1.0
    shape: float = 1.5
    scale: float = 0.02

    @property
    def children(self) -> float:
        """Children that it rests on, the prior's two among them."""
        return self.valid + self.invalid

    @property
    def validity(self) -> float:
        """Expected share of valid children."""
        return self.valid / self.children

    @property
    def spread(self) -> float:
        """Expected standard deviation of a valid child's gain."""
        return math.sqrt(self.scale / max(self.shape - 1, 0.5))

    def after(self, tally: Tally) -> "Belief":
        """After all children of a tally at once; the same as one after the other."""
        weight = self.weight + tally.valid
        around = max(tally.squares - tally.valid * tally.mean**2, 0.0)
        between = self.weight * tally.valid / weight * (tally.mean - self.gain) ** 2
        return Belief(
            valid=self.valid + tally.valid,
            invalid=self.invalid + tally.invalid,
            gain=(self.weight * self.gain + tally.gains) / weight,
            weight=weight,
            shape=self.shape + 0.5 * tally.valid,
            scale=self.scale + 0.5 * (around + between),
        )

    def at_most(self, children: float) -> "Belief":
        """The same expectations, held as if they rested on no more than so many children.

        What was learnt elsewhere is a start, not a certainty: a few children of one's own must be able to refute it.
        """
        share = min(1.0, children / self.children)
        shape = 1 + max(0.5, min(self.shape - 1, children / 2))
        return Belief(
            valid=self.valid * share,
            invalid=self.invalid * share,
            gain=self.gain,
            weight=min(self.weight, children),
            shape=shape,
            scale=self.spread**2 * (shape - 1),
        )

    @property
    def improvement(self) -> float:
        """Expected improvement of one child, E[max(0, gain)] times validity, at the expected mean and spread."""
        return self.validity * _improvement(self.gain, self.spread)

    def draw(self, rng: Random) -> float:
        """Expected improvement of one child, E[max(0, gain)] times validity, in a world drawn from the belief.

        Thompson sampling (Thompson 1933): the more uncertain the belief, the more the draws differ. A loss costs
        nothing but the child, so only the part above zero counts.
        """
        precision = rng.gammavariate(self.shape, 1 / self.scale)
        mean = rng.gauss(self.gain, 1 / math.sqrt(self.weight * precision))
        return rng.betavariate(self.valid, self.invalid) * _improvement(mean, 1 / math.sqrt(precision))


def _improvement(mean: float, spread: float) -> float:
    """E[max(0, x)] of a normal x."""
    at = mean / spread
    return mean * _NORMAL.cdf(at) + spread * _NORMAL.pdf(at)
