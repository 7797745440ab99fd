"""How a brief is made: a strategy chooses operator and parents, and the brief adds what the proposer may know."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from kbevolve.archive.records import Backend, Birth, Operator
from kbevolve.configs.settings import SearchSettings
from kbevolve.evolve.proposers.base import Brief, IslandState, KernelTask, Learnt
from kbevolve.evolve.proposers.codegen.languages import named_backends
from kbevolve.evolve.proposers.tuning.proposer import has_untried
from kbevolve.evolve.proposers.tuning.tunables import skeleton
from kbevolve.evolve.state.attempts import Failure
from kbevolve.evolve.state.context import RunContext
from kbevolve.evolve.state.memory import Memory
from kbevolve.evolve.state.population import Population
from kbevolve.evolve.state.transfer import TransferredKernel
from kbevolve.evolve.strategies.base import Choice, NextChild, Strategy, StrategyView, lookahead_of
from kbevolve.evolve.strategies.evolve import choose
from kbevolve.islands.island import Member
from kbevolve.islands.policy import FREE, Policy, policy_of
from kbevolve.islands.stagnation import stage_of

#: Share of the first children that are shown a kernel of a similar problem, and how many kernels are judged meanwhile.
TRANSFER_SHARE, TRANSFER_UNTIL = 0.5, 100


@dataclass(frozen=True, slots=True, kw_only=True)
class BriefMaker:
    """Makes the briefs of one run. Every random choice has its own generator, named by its child and purpose."""

    context: RunContext
    #: What the run knows.
    population: Population
    #: Those that have a proposer.
    operators: frozenset[Operator]
    #: Chooses; None for the default strategy (`strategies.evolve`).
    strategy: Strategy | None = None
    #: Evaluations without an improvement after which a run takes another stage; 0 for never.
    window: int = 0
    #: Returns the newest generation that is closed.
    closed: Callable[[], int] = lambda: -1

    @property
    def _settings(self) -> SearchSettings:
        return self.context.settings.search

    @property
    def _task(self) -> KernelTask:
        context, device = self.context, self.context.device
        return KernelTask(
            problem=context.problem, device_type=device.type, device=device.description, card=context.card
        )

    def brief(self, *, generation: int, island: int, known: Callable[[str], bool]) -> Brief | None:
        """The brief for an island's next child; None when there is nothing to make a child from."""
        # With the strategy's name: strategies that are compared share neither their luck nor recorded answers.
        luck = f"{self._settings.strategy}/" if self.strategy else ""

        def rng(purpose: str) -> Random:
            return Random(f"{self._settings.seed}/{luck}{island}/{generation}/{purpose}")

        if self.strategy is None:
            decided = self._by_default(island, known, rng)
        else:
            decided = self._by(self.strategy, generation, island, rng)
        if decided is None:
            return None
        choice, learnt, state = decided
        return Brief(
            task=self._task,
            operator=choice.operator,
            parents=choice.parents,
            inspirations=choice.inspirations,
            repair=choice.repair,
            idea=choice.idea,
            learnt=learnt,
            island=state,
            feedback=choice.feedback,
            known=known,
            rng=rng("propose"),
        )

    def _by_default(
        self, island: int, known: Callable[[str], bool], rng: Callable[[str], Random]
    ) -> tuple[Choice, Learnt, IslandState] | None:
        """What the default strategy chooses, and what the proposer may know: all that the run does."""
        population, memory = self.population, self.population.memory()
        policy, champion = self._policy(island), population.new_champion
        # Islands of different languages keep theirs.
        own = champion is not None and policy.backend in (None, champion.kernel.backend)
        choice = choose(
            population.island(island),
            memory,
            settings=self._settings,
            window=self.window,
            operators=self.operators,
            rng=rng,
            tunable=_tunable(known),
            champion=champion if own else None,
        )
        if choice is None:
            return None
        # A prompt has room for one kernel beside the parents.
        shown = champion in choice.inspirations
        learnt = Learnt(
            memory=memory,
            failures=population.failures(island),
            history=population.history(),
            failed=population.failed(),
            transfer=self.context.transfer,
            transferred_kernel=None if shown else self._transferred_kernel(memory, rng("transferred kernel")),
        )
        stage = stage_of(memory.stalled, self.window)
        return choice, learnt, IslandState(number=island, policy=policy, stage=stage)

    def _by(
        self, strategy: Strategy, generation: int, island: int, rng: Callable[[str], Random]
    ) -> tuple[Choice, Learnt, IslandState] | None:
        """What another strategy chooses, and what the proposer may know: as much as the choice says."""
        population, settings, memory = self.population, self._settings, self.population.memory()
        view = StrategyView(population=population, run=self.context.view, island=island, closed=self.closed())
        child = NextChild(
            generation=generation,
            island=island,
            islands=settings.islands,
            operators=self.operators,
            lookahead=lookahead_of(settings, self.operators),
        )
        choice = strategy.choose(view, child, rng("choose"))
        if choice is None:
            return None
        learnt = Learnt(
            # It counts no births and holds no claims, so that the author's first idea is carried out.
            memory=Memory(outcomes=memory.outcomes) if choice.learnt else Memory(),
            failures=choice.failures,
            history=population.history() if choice.learnt else (),
            failed=population.failed() if choice.learnt else (),
            attempts=view.since,
        )
        # Baselines have no policies; the language is the user's choice.
        return choice, learnt, IslandState(policy=replace(FREE, backend=self._language(island)))

    def repair(self, birth: Birth, failure: Failure, *, memory: Memory, known: Callable[[str], bool]) -> Brief:
        """The brief for the repair of a failed child, with what was known when its generation was begun."""
        parents = (parent for parent in birth.parents if self.population.is_correct(parent))
        return Brief(
            task=self._task,
            operator=Operator.REPAIR,
            parents=tuple(map(self.population.member, parents)),
            repair=failure,
            learnt=Learnt(memory=memory),
            island=IslandState(number=birth.island, policy=self._policy(birth.island)),
            known=known,
            rng=Random(f"{self._settings.seed}/{birth.island}/{birth.generation}/repair/{birth.slot}"),
        )

    def _policy(self, island: int) -> Policy:
        return policy_of(
            island,
            islands=self._settings.islands,
            device_type=self.context.device.type,
            backend=self._language(island),
        )

    def _language(self, island: int) -> Backend | None:
        """The language that the settings name for an island; None for the device's own."""
        named = named_backends(self._settings)
        return named[island % len(named)] if named else None

    def _transferred_kernel(self, memory: Memory, rng: Random) -> TransferredKernel | None:
        """A kernel of a similar problem, for some of the first children: later, the problem's own teach more."""
        kernels = self.context.transfer.kernels
        if memory.judged < TRANSFER_UNTIL and rng.random() < TRANSFER_SHARE and kernels:
            return rng.choice(kernels)
        return None


def _tunable(known: Callable[[str], bool]) -> Callable[[Member], bool]:
    """Whether a kernel has a setting that was not tried; each skeleton is looked at once.

    The best kernel of a run may be one with two settings, while others have thousands.
    """
    found: dict[str, bool] = {}

    def tunable(member: Member) -> bool:
        source = member.kernel.source
        shape = skeleton(source)
        if shape not in found:
            found[shape] = has_untried(source, known)
        return found[shape]

    return tunable
