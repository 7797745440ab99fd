"""What each arm brought so far: on other problems, on this one, and on one island, the nearer the more it counts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from types import MappingProxyType

from kbevolve.islands.bandit import choose
from kbevolve.islands.belief import Belief

#: Share of what was learnt that is left after each child of the same place (SEARCH section 6).
FADING = 0.97
#: Children that a prior is worth at most: all problems together for a problem, a problem for an island. Few enough to
#: be outvoted within a dozen children, and more than none, for a run has some hundred children for dozens of arms.
HANDED_DOWN = 6.0
_NOTHING: Mapping[str, Belief] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Credit:
    """Beliefs about arms at one place, on top of what another place hands down; every child makes a new one."""

    #: What is believed before the first child here.
    priors: Mapping[str, Belief] = field(default_factory=lambda: _NOTHING)
    #: What is believed now, of the arms that were tried here.
    beliefs: Mapping[str, Belief] = field(default_factory=lambda: _NOTHING)

    def prior(self, arm: str) -> Belief:
        """What is believed of an arm that was not tried here."""
        return self.priors.get(arm, Belief())

    def belief(self, arm: str) -> Belief:
        """What is believed of an arm."""
        return self.beliefs.get(arm) or self.prior(arm)

    def with_child(self, arm: str, gain: float | None) -> "Credit":
        """After a child of an arm.

        Args:
            arm: e.g. an operator's name, or technique and bottleneck.
            gain: log of its speedup over its parent; None when it was not valid.
        """
        faded = {name: belief.faded(FADING, self.prior(name)) for name, belief in self.beliefs.items()}
        belief = faded.get(arm) or self.prior(arm)
        faded[arm] = belief.with_failure() if gain is None else belief.with_gain(gain)
        return Credit(priors=self.priors, beliefs=faded)

    def handed_down(self) -> "Credit":
        """A place that begins with what is known here."""
        arms = {*self.priors, *self.beliefs}
        return Credit(priors={arm: self.belief(arm).as_prior(HANDED_DOWN) for arm in sorted(arms)})

    def choose(
        self,
        arms: Mapping[str, float],
        rng: Random,
        *,
        costs: Mapping[str, float] | None = None,
        floor: float = 0.0,
    ) -> str:
        """One of the arms; `arms` holds the share of each among those draws that follow no belief (`bandit.choose`)."""
        return choose({arm: self.belief(arm) for arm in arms}, rng, costs=costs, shares=arms, floor=floor)
