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
#: Gains further out say nothing more than these do: a first repair of a broken parent may be a factor of a thousand.
_LARGEST_GAIN = math.log(8.0)


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

    def with_failure(self) -> Self:
        """After a child that was not valid."""
        return replace(self, invalid=self.invalid + 1)

    def with_gain(self, gain: float) -> Self:
        """After a valid child; `gain` is the log of its speedup over its parent."""
        gain = min(max(gain, -_LARGEST_GAIN), _LARGEST_GAIN)
        weight = self.weight + 1
        return replace(
            self,
            valid=self.valid + 1,
            gain=(self.weight * self.gain + gain) / weight,
            weight=weight,
            shape=self.shape + 0.5,
            scale=self.scale + 0.5 * self.weight / weight * (gain - self.gain) ** 2,
        )

    def faded(self, share: float, prior: "Belief") -> "Belief":
        """What is left of it when all but `share` of what lies beyond the prior is forgotten.

        What paid early in a search pays no longer: the parents have it by now.
        """
        weight = prior.weight + share * (self.weight - prior.weight)
        gain = (prior.weight * prior.gain + share * (self.weight * self.gain - prior.weight * prior.gain)) / weight
        return Belief(
            valid=prior.valid + share * (self.valid - prior.valid),
            invalid=prior.invalid + share * (self.invalid - prior.invalid),
            gain=gain,
            weight=weight,
            shape=prior.shape + share * (self.shape - prior.shape),
            scale=prior.scale + share * (self.scale - prior.scale),
        )

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
