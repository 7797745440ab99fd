"""The default strategy: which parents and which operator come next, by what the run has learnt.

Runs and simulated searches (`simulation.searchers.ours`) choose by the same function. Its constants were chosen on the
ladders of `simulation.ladders`; `benchmarks/search_constants.py` varies them.
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from random import Random

from kbevolve.archive.records import Operator
from kbevolve.configs.settings import SearchSettings
from kbevolve.evolve.proposers.tuning.tunables import declared
from kbevolve.evolve.state.memory import Memory
from kbevolve.evolve.strategies.base import Choice
from kbevolve.evolve.strategies.operators import choose_operator, operator_shares
from kbevolve.islands.island import Island, Member
from kbevolve.islands.selection import (
    FAR_AHEAD,
    NicheSelection,
    RankSelection,
    RivalSelection,
    Selection,
    inspirations,
)
from kbevolve.islands.stagnation import Stage, stage_of

#: Parents in a run with a model: an island's best, as long as it leads to something better. Diversity is that of the
#: islands, and of the stages of a stagnating run.
RANKS = RankSelection(pressure=20.0, elite_share=0.0)
#: … in an offline one: children differ from their parents in tunables alone, and several skeletons deserve children.
OFFLINE_RANKS = RankSelection(pressure=1.5, elite_share=0.25)
#: … while a run explores.
EXPLORING_RANKS = RankSelection(pressure=3.0, elite_share=0.25)
#: Share of the children of rivals of the best (`RivalSelection`). It grows from the first number of kernels judged
#: without an improvement to the second; from the third on there are none: what rivals did not lead to by then they do
#: not lead to (the end was chosen on measured landscapes).
RIVALS, RIVALS_FROM, RIVALS_AT, RIVALS_UNTIL = 0.5, 20, 40, 60
#: Kernels that are judged before elites of other niches are shown: at first these are merely earlier kernels.
INSPIRED_FROM = 60


def choose(
    home: Island,
    memory: Memory,
    *,
    settings: SearchSettings,
    window: int,
    operators: Collection[Operator],
    rng: Callable[[str], Random],
    tunable: Callable[[Member], bool] = lambda member: bool(declared(member.kernel.source)),
    champion: Member | None = None,
) -> Choice | None:
    """Operator, parents and inspirations of the next child.

    Args:
        home: the island; its members know how many children they had.
        memory: what the run had learnt when the generation was begun.
        settings: of the search.
        window: evaluations without an improvement after which a run takes another stage; 0 for never.
        operators: those that have a proposer. Without MUTATE the run is an offline one.
        rng: gives a generator for each purpose, so that no choice moves the numbers of another.
        tunable: whether a kernel declares values that can be tuned.
        champion: the run's best kernel, if the newest generation created it and the island may learn from it. So each
            champion is shown to one child of an island.

    Returns:
        The choice; None when no operator has a parent on the island.
    """
    writes, stage = Operator.MUTATE in operators, stage_of(memory.stalled, window)
    shares = operator_shares(operators, stalled=memory.stalled, tune_share=settings.tune_share)
    ranks = RANKS if writes else OFFLINE_RANKS
    if settings.selection_pressure is not None:
        ranks = replace(ranks, pressure=settings.selection_pressure)
    ranks = replace(ranks, discount=settings.child_discount)
    selection = selection_at(stage, ranks, stalled=memory.stalled if writes else 0)
    while shares:
        operator = choose_operator(
            shares,
            memory.operators,
            rng(f"operator/{len(shares)}"),
            by_credit=writes and settings.operator_choice == "credit",
            exploring=stage is not Stage.SEARCHING,
        )
        # Tuning needs a parent that declares tunables; so does crossing when no model does it.
        needs_tunables = operator is Operator.TUNE or (operator is Operator.CROSS and not writes)
        parents = selection(home, rng("parents"), tunable if needs_tunables else lambda member: True)
        del shares[operator]
        wanted = 2 if operator is Operator.CROSS else 1
        if len(parents) >= wanted:
            parents = parents[:wanted]
            inspired = memory.judged >= INSPIRED_FROM
            shown = inspirations(home, parents, rng("inspirations")) if inspired else ()
            if champion is not None and home.best is not None and champion.fitness > FAR_AHEAD * home.best.fitness:
                shown = (champion, *shown)
            return Choice(operator=operator, parents=parents, inspirations=shown)
    return None


def selection_at(stage: Stage, ranks: RankSelection, *, stalled: int) -> Selection:
    """How parents are chosen at a stage of a run, with rivals of the best among them.

    By `ranks` as long as the run does not stagnate, flatter while it explores, and from niches that had few children
    while it goes back. `stalled` counts the kernels judged since the last improvement.
    """
    flat = replace(EXPLORING_RANKS, discount=ranks.discount)
    staged: Selection = ranks
    if stage is not Stage.SEARCHING:
        staged = flat if stage is Stage.EXPLORING else NicheSelection(otherwise=flat)
    if not RIVALS_FROM < stalled < RIVALS_UNTIL:
        return staged
    begun = min(1.0, (stalled - RIVALS_FROM) / (RIVALS_AT - RIVALS_FROM))
    return RivalSelection(otherwise=staged, share=RIVALS * begun)
