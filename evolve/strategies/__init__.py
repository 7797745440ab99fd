"""Which parents and which operator come next, by name: the default strategy, and those it is compared with.

A strategy is a pure policy: from what a run knows and an explicit `Random` it chooses what the next child is made from
and by which operator. Everything else is the same for all of them: starting kernels, judge, cache of duplicates, repair
turns, contests of champions, budgets, resuming. It may import `state` and `proposers` of `evolve`.
"""

from collections.abc import Collection, Mapping
from typing import Any

from kbevolve.archive.records import Operator
from kbevolve.configs.errors import UsageError
from kbevolve.configs.settings import SearchSettings, Settings
from kbevolve.evolve.strategies.base import Strategy, StrategyKind, lookahead_of
from kbevolve.evolve.strategies.baselines import BestOfN, Greedy, OpenEvolve
from kbevolve.evolve.strategies.refine import Refine
from kbevolve.evolve.strategies.tree import Tree

__all__ = ["STRATEGIES", "check_strategy", "fitted", "strategy_of"]

#: Names as `search.strategy` has them; the default one first.
STRATEGIES: Mapping[str, StrategyKind] = {
    "evolve": StrategyKind(words="islands, niches, ideas with memory, crossing and tuning", make=None),
    "best-of-n": StrategyKind(
        words="repeated sampling: every child a rewrite of the starting kernel", make=lambda settings: BestOfN()
    ),
    "refine": StrategyKind(
        words="iterative refinement: every child from the last one, right or wrong",
        make=lambda settings: Refine(feedback=settings.feedback),
        serial=True,
        repairs=False,
        needs_model="it shows a model the result of its last kernel",
    ),
    "greedy": StrategyKind(
        words="(1+1): every child from the best so far",
        make=lambda settings: Greedy(tune_share=settings.tune_share),
        serial=True,
    ),
    "tree": StrategyKind(
        words="ideas branch into implementations, and the best seed the next round",
        make=lambda settings: Tree(ideas=settings.tree_ideas, implementations=settings.tree_implementations),
        needs_model="its ideas are a model's",
    ),
    "openevolve": StrategyKind(
        words="OpenEvolve's own controller and database",
        make=lambda settings: OpenEvolve(),
        serial=True,
        repairs=False,
        needs_model="OpenEvolve has a model write every program",
    ),
}


def strategy_of(settings: SearchSettings) -> Strategy | None:
    """The strategy of the settings; None for the default one."""
    make = STRATEGIES[settings.strategy].make
    return make(settings) if make else None


def fitted(settings: Settings) -> Settings:
    """Settings of a new run as its strategy can keep them."""
    kind, search = STRATEGIES[settings.search.strategy], settings.search
    changes: dict[str, Any] = {"islands": 1, "lookahead": 0} if kind.serial else {}
    if not kind.repairs:
        changes["repair_turns"] = 0
    return settings.model_copy(update={"search": search.model_copy(update=changes)})


def check_strategy(settings: Settings, operators: Collection[Operator]) -> None:
    """Check before anything is spent that a run's strategy can work.

    Args:
        settings: all settings.
        operators: those that have a proposer.

    Raises:
        UsageError: it needs a model and there is none, or children would not wait for each other.
    """
    name = settings.search.strategy
    kind = STRATEGIES[name]
    if kind.needs_model and Operator.MUTATE not in operators:
        others = [other for other, one in STRATEGIES.items() if not one.needs_model]
        raise UsageError(
            f"strategy {name} needs a model ({kind.needs_model}); add --model NAME (and --api-base URL), or take "
            f"{', '.join(others[:-1])} or {others[-1]}, which do without"
        )
    lookahead = lookahead_of(settings.search, operators)
    if kind.serial and (settings.search.islands > 1 or lookahead):
        raise UsageError(
            f"strategy {name} makes one child after another: it wants search.islands = 1 and search.lookahead = 0, not "
            f"{settings.search.islands} and {lookahead}"
        )
