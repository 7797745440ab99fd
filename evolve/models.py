"""Several models that write children: which of them writes the next one, and the proposer that asks it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from kbevolve.archive.records import Idea
from kbevolve.evolve.brief import Brief, Proposal, Proposer

#: Model, as the archive names it -> what came of its ideas, the latest ones: the best gain over the parent of each
#: (1.25: a quarter faster), None when no kernel worked.
Gains = Mapping[str, Sequence[float | None]]


class ModelChoice(Protocol):
    """Decides which model writes a child. Pure: the same gains and random numbers give the same model."""

    def choose(self, gains: Gains, rng: Random) -> str:
        """Name of the model, as the settings have it.

        Args:
            gains: what came of earlier births; an endpoint may call a model by a longer name than the settings do.
            rng: the child's own.
        """
        ...


@dataclass(frozen=True, slots=True)
class WeightedChoice:
    """Models in proportion to fixed weights, whatever came of them."""

    #: Name -> weight, at least one.
    weights: Mapping[str, float]

    def choose(self, gains: Gains, rng: Random) -> str:
        """As `ModelChoice.choose`."""
        return rng.choices(list(self.weights), list(self.weights.values()))[0]


def gains_of(tried: Mapping[Idea, float | None]) -> Gains:
    """What came of the ideas that were tried, by the model that had them."""
    gains: dict[str, list[float | None]] = {}
    for idea, gain in tried.items():
        gains.setdefault(idea.proposed_by, []).append(gain)
    return gains


@dataclass(frozen=True, slots=True, kw_only=True)
class SeveralModels:
    """A proposer made of one for each model; all requests of a child go to the model that was chosen for it."""

    #: Name of a model -> the proposer that asks it.
    proposers: Mapping[str, Proposer]
    choice: ModelChoice

    def propose(self, brief: Brief) -> Proposal:
        """Have one of them write the child.

        Raises:
            ProposerError: its model cannot be reached.
        """
        return self.proposers[self.choice.choose(gains_of(brief.tried), brief.rng)].propose(brief)

    def close(self) -> None:
        """Give up requests that are under way in other threads."""
        for proposer in self.proposers.values():
            close = getattr(proposer, "close", None)
            if close is not None:
                close()
