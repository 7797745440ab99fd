"""How a brief is made: operator, parents, inspirations and failures of one child, from what the run knows."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from random import Random

from kbevolve.archive.records import Birth, Idea, Operator
from kbevolve.configs.settings import SearchSettings
from kbevolve.evolve.proposers.base import Brief, IslandState, KernelTask, Learnt, Proposer
from kbevolve.evolve.proposers.tuning.tunables import declared
from kbevolve.evolve.state.attempts import Failure
from kbevolve.evolve.state.knowledge import Memory
from kbevolve.evolve.state.population import Population
from kbevolve.evolve.state.transfer import TransferredKernel, TransferredKnowledge
from kbevolve.evolve.strategies.base import Choice
from kbevolve.evolve.strategies.operators import choose_operator, operator_shares
from kbevolve.islands.island import Island, Member
from kbevolve.islands.policy import Policy, policy_of
from kbevolve.islands.selection import NicheSelection, RankSelection, RivalSelection, Selection, inspirations
from kbevolve.islands.stagnation import Stage, stage_of

#: Who breeds in a run with a model: an island's best, as long as that leads on (chosen on the ladders of
#: `trials.ladders`). Diversity is the islands', and that of the stages of a run that is stuck.
LAW = RankSelection(pressure=20.0, elite_share=0.0)
#: … in an offline one: children differ from their parents in tunables alone, and several skeletons deserve their turn.
OFFLINE_LAW = RankSelection(pressure=1.5, elite_share=0.25)
#: … while a run explores.
EXPLORING_LAW = RankSelection(pressure=3.0, elite_share=0.25)
#: Share of the children of rivals of the best (`RivalSelection`); and how many kernels are judged without an
#: improvement before there are any, until they are so many, and until there are no more: what they did not lead to by
#: then they do not lead to (chosen on the ladders, the end on measured landscapes).
RIVALS, RIVALS_FROM, RIVALS_AT, RIVALS_UNTIL = 0.5, 20, 40, 60
#: Share of the first children that are shown a kernel of a similar problem, and how many kernels are judged meanwhile.
TRANSFER_SHARE, TRANSFER_UNTIL = 0.5, 100
#: Kernels that are judged before elites of other niches are shown: at first these are merely what came before.
INSPIRED_FROM = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Breeding:
    """Makes briefs. Every random choice has its own generator, named by seed, island, generation and purpose."""

    task: KernelTask
    settings: SearchSettings
    proposers: Mapping[Operator, Proposer]
    #: What other problems gave to the run.
    transfer: TransferredKnowledge = field(default_factory=TransferredKnowledge)
    #: Evaluations without an improvement after which a run takes another stage (`islands.stagnation`); 0 for never.
    window: int = 0

    def brief(
        self, population: Population, *, generation: int, island: int, known: Callable[[str], bool]
    ) -> Brief | None:
        """The brief for an island's next child; None when no operator has a parent there."""
        memory = population.memory()
        choice = choose(
            population.island(island),
            memory,
            settings=self.settings,
            window=self.window,
            operators=self.proposers,
            rng=lambda purpose: self._rng(generation, island, purpose),
        )
        if choice is None:
            return None
        return Brief(
            task=self.task,
            operator=choice.operator,
            parents=choice.parents,
            inspirations=choice.inspirations,
            learnt=Learnt(
                memory=memory,
                tried=population.tried(),
                failures=population.failures(island),
                history=population.history(),
                transfer=self.transfer,
                transferred_kernel=self._transferred_kernel(
                    memory, self._rng(generation, island, "transferred kernel")
                ),
            ),
            island=IslandState(number=island, policy=self._policy(island), stage=stage_of(memory.stalled, self.window)),
            known=known,
            rng=self._rng(generation, island, "propose"),
        )

    def repair(
        self,
        population: Population,
        birth: Birth,
        failure: Failure,
        *,
        tried: Mapping[Idea, float | None],
        memory: Memory,
        known: Callable[[str], bool],
    ) -> Brief:
        """The brief for mending a child that failed, with what was known when its generation was bred."""
        return Brief(
            task=self.task,
            operator=Operator.REPAIR,
            parents=tuple(population.member(parent) for parent in birth.parents if population.is_correct(parent)),
            repair=failure,
            learnt=Learnt(memory=memory, tried=tried),
            island=IslandState(number=birth.island, policy=self._policy(birth.island)),
            known=known,
            rng=self._rng(birth.generation, birth.island, f"repair/{birth.slot}"),
        )

    def _policy(self, island: int) -> Policy:
        return policy_of(island, islands=self.settings.islands, device_type=self.task.device_type)

    def _transferred_kernel(self, memory: Memory, rng: Random) -> TransferredKernel | None:
        """A kernel of a similar problem, for some of the first children: later, the problem's own teach more."""
        if memory.judged < TRANSFER_UNTIL and rng.random() < TRANSFER_SHARE and self.transfer.kernels:
            return rng.choice(self.transfer.kernels)
        return None

    def _rng(self, generation: int, island: int, purpose: str) -> Random:
        return Random(f"{self.settings.seed}/{island}/{generation}/{purpose}")


def choose(
    home: Island,
    memory: Memory,
    *,
    settings: SearchSettings,
    window: int,
    operators: Collection[Operator],
    rng: Callable[[str], Random],
    tunable: Callable[[Member], bool] = lambda member: bool(declared(member.kernel.source)),
) -> Choice | None:
    """Operator, parents and inspirations of the next child; runs and simulated searches choose by this function.

    Args:
        home: the island; its members know how many children they had.
        memory: what the run had learnt when the generation was begun.
        settings: of the search.
        window: evaluations without an improvement after which a run takes another stage; 0 for never.
        operators: those that have a proposer. Without MUTATE the run is an offline one.
        rng: gives a generator for each purpose, so that no choice moves the numbers of another.
        tunable: whether a kernel declares values that can be tuned.

    Returns:
        The choice; None when no operator has a parent on the island.
    """
    writes, stage = Operator.MUTATE in operators, stage_of(memory.stalled, window)
    shares = operator_shares(operators, stalled=memory.stalled, tune_share=settings.tune_share)
    selection = _selection(settings, stage, stalled=memory.stalled, writes=writes)
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
            return Choice(operator=operator, parents=parents, inspirations=shown)
    return None


def _selection(settings: SearchSettings, stage: Stage, *, stalled: int, writes: bool) -> Selection:
    """By rank, and rivals of the best once a model is stuck; flatter while the run explores, and from niches that had
    few children while it goes back."""
    ranks = LAW if writes else OFFLINE_LAW
    if settings.selection_pressure is not None:
        ranks = replace(ranks, pressure=settings.selection_pressure)
    return law_at(stage, replace(ranks, discount=settings.child_discount), stalled=stalled if writes else 0)


def law_at(stage: Stage, law: RankSelection, *, stalled: int) -> Selection:
    """Who breeds at a stage of a run with a model, of which `law` says who does as long as it is not stuck.

    `stalled` counts the kernels judged since the last improvement.
    """
    staged = _staged(stage, law)
    if not RIVALS_FROM < stalled < RIVALS_UNTIL:
        return staged
    begun = min(1.0, (stalled - RIVALS_FROM) / (RIVALS_AT - RIVALS_FROM))
    return RivalSelection(otherwise=staged, share=RIVALS * begun)


def _staged(stage: Stage, law: RankSelection) -> Selection:
    if stage is Stage.SEARCHING:
        return law
    flat = replace(EXPLORING_LAW, discount=law.discount)
    return flat if stage is Stage.EXPLORING else NicheSelection(otherwise=flat)
