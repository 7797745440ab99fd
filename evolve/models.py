"""Several models that write children: which of them writes the next one, and the proposer that asks it."""

from collections.abc import Mapping
from dataclasses import dataclass

from kbevolve.evolve.brief import Brief, Proposal, Proposer
from kbevolve.evolve.interruption import end_requests


@dataclass(frozen=True, slots=True, kw_only=True)
class SeveralModels:
    """A proposer made of one for each model; all requests of a child go to the one that its own `Random` draws."""

    #: Name of a model -> the proposer that asks it, and its weight among all of them.
    proposers: Mapping[str, Proposer]
    weights: Mapping[str, float]

    def propose(self, brief: Brief) -> Proposal:
        """Have one of them write the child.

        Raises:
            ProposerError: its model cannot be reached.
        """
        name = brief.rng.choices(list(self.weights), list(self.weights.values()))[0]
        return self.proposers[name].propose(brief)

    def close(self) -> None:
        """Give up requests that are under way in other threads."""
        for proposer in self.proposers.values():
            end_requests(proposer)
