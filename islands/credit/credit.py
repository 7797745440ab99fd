"""The gains of each arm so far, added to prior beliefs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from types import MappingProxyType

from kbevolve.islands.credit.bandit import choose
from kbevolve.islands.credit.posterior import Belief

#: Share of the evidence that is left after each child.
FADING = 0.97
_NOTHING: Mapping[str, Belief] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Credit:
    """Beliefs about arms. Immutable: every child makes a new one."""

    #: What is believed before the first child.
    priors: Mapping[str, Belief] = field(default_factory=lambda: _NOTHING)
    #: What is believed now, of the arms that were tried.
    beliefs: Mapping[str, Belief] = field(default_factory=lambda: _NOTHING)

    def prior(self, arm: str) -> Belief:
        """What is believed of an arm that was not tried."""
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

    def choose(
        self,
        arms: Mapping[str, float],
        rng: Random,
        *,
        costs: Mapping[str, float] | None = None,
        floor: float = 0.0,
    ) -> str:
        """One of the arms; `arms` holds the share of each among those draws that follow no belief (`bandit.choose`)."""
        return choose({arm: self.belief(arm) for arm in arms}, rng, shares=arms, costs=costs, floor=floor)
