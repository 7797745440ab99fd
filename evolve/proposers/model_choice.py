"""Several models that write children: which of them writes the next one, and the proposer that asks it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from kbevolve.configs.prices import Price, Prices
from kbevolve.evolve.llm.client import end_requests
from kbevolve.evolve.proposers.base import Brief, Proposal, Proposer
from kbevolve.evolve.state.knowledge import Memory, Spending

#: What a child costs beside its tokens, dollars: a quarter of a minute of a device at 3 dollars an hour. Without it the
#: cheapest model would win whatever it writes. A number of its own, not a clock's: clocks would make no two runs alike.
EVALUATION_DOLLARS = 0.0125
#: Tokens of a child of which nothing is known yet.
USUAL_TOKENS = Spending(births=1, prompt_tokens=8000, completion_tokens=8000)
#: Share of the children that each model gets whatever is believed of it; of many models, half of an even share.
FLOOR = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class ByTemperature:
    """A proposer made of one for each temperature at which the islands ask the same model."""

    #: `Policy.warmth` -> the proposer that asks at that temperature.
    proposers: Mapping[float, Proposer]

    def propose(self, brief: Brief) -> Proposal:
        """Have the child's island ask.

        Raises:
            ProposerError: the model cannot be reached.
        """
        return self.proposers[brief.island.policy.warmth].propose(brief)

    def close(self) -> None:
        """Give up requests that are under way in other threads."""
        for proposer in self.proposers.values():
            end_requests(proposer)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeveralModels:
    """A proposer made of one for each model; all requests of a child go to the one that its own `Random` draws."""

    #: Name of a model -> the proposer that asks it, and its weight among all of them.
    proposers: Mapping[str, Proposer]
    weights: Mapping[str, float]
    #: Whether what each has brought decides; then weights count among the draws that follow no credit.
    bandit: bool = False
    prices: Prices = field(default_factory=Prices)

    def propose(self, brief: Brief) -> Proposal:
        """Have one of them write the child.

        Raises:
            ProposerError: its model cannot be reached.
        """
        name = self._by_credit(brief) if self.bandit else self._by_weight(brief)
        return replace(self.proposers[name].propose(brief), author=name)

    def close(self) -> None:
        """Give up requests that are under way in other threads."""
        for proposer in self.proposers.values():
            end_requests(proposer)

    def _by_weight(self, brief: Brief) -> str:
        return brief.rng.choices(list(self.weights), list(self.weights.values()))[0]

    def _by_credit(self, brief: Brief) -> str:
        floor = min(FLOOR, 0.5 / len(self.weights))
        return brief.learnt.memory.authors.choose(
            self.weights, brief.rng, costs=self._costs(brief.learnt.memory), floor=floor
        )

    def _costs(self, memory: Memory) -> Mapping[str, float] | None:
        """Dollars of a child of each model; None where a price is not known, for then none can be compared."""
        prices = {name: self.prices.of(name) for name in self.weights}
        known = {name: price for name, price in prices.items() if price is not None}
        if len(known) < len(prices):
            return None
        usual = _together(memory.spending.values()) if memory.spending else USUAL_TOKENS
        return {name: _dollars(memory.spending.get(name, usual), price) for name, price in known.items()}


def _together(spendings: Iterable[Spending]) -> Spending:
    """What all models have cost together: the best guess of one that was not asked yet."""
    known = list(spendings)
    return Spending(
        births=sum(one.births for one in known),
        prompt_tokens=sum(one.prompt_tokens for one in known),
        completion_tokens=sum(one.completion_tokens for one in known),
    )


def _dollars(spending: Spending, price: Price) -> float:
    """Of a child, on average."""
    tokens = price.dollars(spending.prompt_tokens, spending.completion_tokens)
    return EVALUATION_DOLLARS + tokens / max(spending.births, 1)
