"""Which model writes the next child, and at which temperature."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kbevolve.configs.prices import Prices
from kbevolve.evolve.llm.client import end_requests
from kbevolve.evolve.proposers.base import Brief, Proposal, Proposer
from kbevolve.evolve.state.knowledge import Spending
from kbevolve.evolve.state.memory import Memory

#: Cost of a child beside its tokens, dollars: a quarter of a minute of a device at 3 dollars an hour. Without it the
#: cheapest model would win whatever it writes. A constant, not a measured time: runs must be repeatable.
EVALUATION_DOLLARS = 0.0125
#: Tokens of a child before anything is known.
USUAL_TOKENS = Spending(births=1, prompt_tokens=8000, completion_tokens=8000)
#: Least share of the children of each model; with many models, half of an equal share.
FLOOR = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoice:
    """Asks one model for the whole child: with several, the brief's rng draws it."""

    #: Name of a model -> `Policy.temperature_factor` -> the proposer that asks it at that temperature. Not empty.
    proposers: Mapping[str, Mapping[float, Proposer]]
    #: Name -> weight, where there are several models.
    weights: Mapping[str, float] = field(default_factory=dict)
    #: Whether the models' results decide; the weights then apply only to draws that ignore results.
    bandit: bool = False
    prices: Prices = field(default_factory=Prices)

    def propose(self, brief: Brief) -> Proposal:
        """Write one child at its island's temperature.

        Raises:
            ProposerError: the model cannot be reached.
        """
        several, memory = len(self.proposers) > 1, brief.learnt.memory
        if not several:
            name = next(iter(self.proposers))
        elif self.bandit:
            floor = min(FLOOR, 0.5 / len(self.weights))
            name = memory.models.choose(self.weights, brief.rng, costs=self._costs(memory), floor=floor)
        else:
            name = brief.rng.choices(list(self.weights), list(self.weights.values()))[0]
        proposal = self.proposers[name][brief.island.policy.temperature_factor].propose(brief)
        return replace(proposal, model_alias=name) if several else proposal

    def close(self) -> None:
        """Cancel the requests of other threads."""
        for proposers in self.proposers.values():
            for proposer in proposers.values():
                end_requests(proposer)

    def _costs(self, memory: Memory) -> Mapping[str, float] | None:
        """Dollars per child of each model; None when a price is unknown, because then none can be compared."""
        prices = {name: self.prices.of(name) for name in self.weights}
        known = memory.spending.values()
        # The average over all models is the best guess for a model that was not asked yet.
        usual = Spending(
            births=sum(one.births for one in known),
            prompt_tokens=sum(one.prompt_tokens for one in known),
            completion_tokens=sum(one.completion_tokens for one in known),
        )
        costs = {}
        for name, price in prices.items():
            if price is None:
                return None
            spent = memory.spending.get(name, usual if known else USUAL_TOKENS)
            dollars = price.dollars(spent.prompt_tokens, spent.completion_tokens)
            costs[name] = EVALUATION_DOLLARS + dollars / max(spent.births, 1)
        return costs
