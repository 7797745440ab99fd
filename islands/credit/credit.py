"""A bandit over operators or models: the gains of each arm so far, added to prior beliefs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from types import MappingProxyType

from kbevolve.islands.credit.posterior import Belief, Tally

#: Share of the evidence that is left after each child.
FADING = 0.97


@dataclass(frozen=True, slots=True, kw_only=True)
class Credit:
    """Beliefs about arms. Immutable: every child makes a new one."""

    #: What is believed before the first child.
    priors: Mapping[str, Belief] = field(default_factory=lambda: MappingProxyType({}))
    #: Results of the arms that were tried.
    tallies: Mapping[str, Tally] = field(default_factory=lambda: MappingProxyType({}))

    def belief(self, arm: str) -> Belief:
        """What is believed of an arm."""
        return self.priors.get(arm, Belief()).after(self.tallies.get(arm, Tally()))

    def with_child(self, arm: str, gain: float | None) -> "Credit":
        """After a child of an arm; `gain` is the log of its speedup over its parent, None when it was not valid."""
        faded = {name: tally.faded(FADING) for name, tally in self.tallies.items()}
        faded[arm] = faded.get(arm, Tally()).with_child(gain)
        return Credit(priors=self.priors, tallies=faded)

    def choose(
        self,
        arms: Mapping[str, float],
        rng: Random,
        *,
        costs: Mapping[str, float] | None = None,
        floor: float = 0.0,
    ) -> str:
        """One arm by Thompson sampling: the one with the largest draw.

        Args:
            arms: at least one, with its weight among the draws that ignore beliefs.
            rng: the only source of randomness.
            costs: of a child of each arm, in any unit; draws are divided by it; equal when None.
            floor: share of the draws that each arm gets without regard to beliefs, at most 1 / arms: an arm that failed
                on the first parents may be right for later ones.
        """
        names = sorted(arms)
        # Always drawn, so that one decision never shifts the random numbers of another.
        is_blind = rng.random() < floor * len(names)
        (by_weight,) = rng.choices(names, [arms[name] for name in names])
        draws = {name: self.belief(name).draw(rng) / (costs or {}).get(name, 1.0) for name in names}
        return by_weight if is_blind else max(names, key=draws.__getitem__)
