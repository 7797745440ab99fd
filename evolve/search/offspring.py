"""The offspring in flight, of all open generations: requested, judged, and repaired while they fail.

Each child depends only on what was known when its generation was created, so its fate does not depend on the speed
of the others. All code here runs in the loop's thread; the executor only asks models and judges.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter

from kbevolve.archive.records import Birth, BirthState, Evaluation, Kernel, Operator
from kbevolve.evaluators.evaluator import Evaluator
from kbevolve.evolve.proposers.base import Brief, Proposal, Proposer
from kbevolve.evolve.search.deadline import Deadline
from kbevolve.evolve.search.executor import Executor, Urgency
from kbevolve.evolve.search.ideas_in_flight import IdeasInFlight
from kbevolve.evolve.state.attempts import COMPARED, Failure, Likeness, NearDuplicates
from kbevolve.evolve.state.context import RunContext
from kbevolve.evolve.state.memory import Memory
from kbevolve.evolve.state.population import Population
from kbevolve.evolve.strategies.brief_maker import BriefMaker
from kbevolve.islands.source.canonical import canonical_id

#: Operators whose children carry out an idea that is chosen before they are written.
BY_IDEA = (Operator.MUTATE, Operator.REWRITE)
#: Names of the executor's pools.
PROPOSE, JUDGE = "propose", "judge"


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationSnapshot:
    """What the run knew when a generation was created; its children use it later."""

    generation: int
    #: The newest generation that was closed then; -1 for none.
    closed: int
    memory: Memory
    #: Ids of known failures (`evolve.state.attempts`).
    failures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptResult:
    """A completed attempt and the evaluation of its kernel."""

    birth: Birth
    #: None when there is no kernel, or it was not judged. Without blocks, which are in the archive.
    evaluation: Evaluation | None
    #: Whether the evaluation existed already.
    remembered: bool


@dataclass(slots=True, kw_only=True)
class Offspring:
    """The child of an island in one generation: an attempt, and its repairs while it fails."""

    snapshot: GenerationSnapshot
    island: int
    #: Completed attempts, the first one first.
    results: list[AttemptResult] = field(default_factory=list)
    #: Attempts that an earlier session left in the archive, by slot.
    recorded: Mapping[int, Birth] = field(default_factory=dict)
    done: bool = False

    @property
    def generation(self) -> int:
        """Its generation."""
        return self.snapshot.generation

    @property
    def judged_attempts(self) -> list[Birth]:
        """Its attempts whose kernels the run has: near-duplicates were not judged, so they do not count."""
        return [one.birth for one in self.results if one.birth.state is not BirthState.NEAR_DUPLICATE]


@dataclass(slots=True, kw_only=True)
class OffspringInFlight:
    """The offspring of one run that are not complete."""

    context: RunContext
    population: Population
    #: Proposer of each operator; without one for REPAIR nothing is repaired.
    proposers: Mapping[Operator, Proposer]
    #: The judge; several threads may call it.
    evaluator: Evaluator
    #: Makes the briefs of repairs.
    briefs: BriefMaker
    executor: Executor
    deadline: Deadline
    #: Called with each attempt that is about to be judged, and with None when the work in flight changes otherwise.
    announce: Callable[[Birth | None], None]
    #: The ideas of all children in flight.
    ideas: IdeasInFlight = field(default_factory=IdeasInFlight, init=False)
    #: How many requests for a child are under way.
    asked: int = field(default=0, init=False)
    #: Kernel id -> the attempts that wait for its verdict; the first one submitted it.
    _judged: dict[str, list[tuple[Offspring, Birth]]] = field(default_factory=dict, init=False)
    _novelty: NearDuplicates = field(init=False)

    def __post_init__(self) -> None:
        self._novelty = NearDuplicates(self.context.view)

    @property
    def _repair_turns(self) -> int:
        """Without repair turns no near-duplicate is asked for again either."""
        return self.context.settings.search.repair_turns if Operator.REPAIR in self.proposers else 0

    @property
    def _shares_ideas(self) -> bool:
        """Whether children look at each other's ideas; those of the strategies for comparison do not."""
        return self.context.settings.search.strategy == "evolve"

    @property
    def judging(self) -> tuple[Birth, ...]:
        """The attempts that are being judged, the most urgent first."""
        births = sorted((attempts[0][1] for attempts in self._judged.values()), key=_urgency)
        return tuple(births[: self.executor.size(JUDGE)])

    @property
    def waiting(self) -> int:
        """How many kernels wait for a judge."""
        return max(len(self._judged) - self.executor.size(JUDGE), 0)

    def ask(self, child: Offspring, slot: int, brief: Brief, parents: tuple[str, ...]) -> None:
        """Ask a proposer in this thread: it takes milliseconds, or must not be asked concurrently."""
        proposal, seconds = self._timed(brief)
        self.add(child, slot, proposal, brief.operator, parents, seconds)

    def ask_later(self, child: Offspring, slot: int, brief: Brief, parents: tuple[str, ...]) -> None:
        """Ask a proposer in another thread; the answer is written as soon as it arrives."""

        def answered(answer: tuple[Proposal, float]) -> None:
            self.asked -= 1
            self.add(child, slot, answer[0], brief.operator, parents, answer[1])

        self.asked += 1
        urgency = (child.generation, child.island, slot)
        brief = replace(brief, child="g{}/i{}/s{}".format(*urgency))
        work = partial(self._timed, brief)
        if slot == 0 and self._shares_ideas and brief.operator in BY_IDEA:
            self.ideas.expect((child.generation, child.island), brief.idea)
            work = partial(self._written, child, brief)
        self.executor.submit(PROPOSE, urgency, work, answered)
        self.announce(None)

    def add(
        self,
        child: Offspring,
        slot: int,
        proposal: Proposal,
        operator: Operator,
        parents: tuple[str, ...] = (),
        seconds: float = 0.0,
    ) -> None:
        """Write an attempt before its kernel is run, then have the kernel judged.

        A duplicate is a kernel that the run had when the generation was created. Equal kernels of two children in
        flight are not: which is first depends on the order of the answers, and a resumed run must decide the same.
        """
        kernel, idea, state, note = proposal.kernel, proposal.idea, proposal.state, proposal.note
        parents = proposal.parents if proposal.parents is not None else parents
        form = canonical_id(kernel.source) if kernel else ""
        equal: str | None = None
        if kernel is not None and self._has(child, kernel.id):
            state = BirthState.DUPLICATE
        elif kernel is not None and (equal := self._of_form(child, form)) is not None:
            state, note = BirthState.DUPLICATE, f"{equal} under other names: {note}"
        elif kernel is not None and slot == 0 and operator in COMPARED and state is BirthState.CREATED:
            like = self._likeness(child, kernel, parents)
            if like is not None:
                state, note = BirthState.NEAR_DUPLICATE, f"{like.words}: {note}"
        birth = Birth(
            run=self.context.run.id,
            generation=child.generation,
            island=child.island,
            slot=slot,
            operator=operator,
            state=state,
            parents=parents,
            kernel=equal or (kernel.id if kernel else None),
            proposed_kernel=kernel.id if kernel and equal else None,
            canonical_hash=form,
            idea=idea.id if idea else None,
            note=note,
            prompt=proposal.prompt,
            reply=proposal.reply,
            model=proposal.model,
            model_alias=proposal.model_alias,
            prompt_tokens=proposal.prompt_tokens,
            completion_tokens=proposal.completion_tokens,
            seconds=round(seconds, 3),
        )
        self.context.archive.add_birth(birth, kernel=kernel, idea=idea)
        self.adopt(child, replace(birth, prompt="", reply=""))

    def adopt(self, child: Offspring, birth: Birth) -> None:
        """Have the kernel of a written attempt judged, unless it has a verdict or is a near-duplicate."""
        self.note_idea(birth)
        if birth.kernel is None or birth.state is BirthState.NEAR_DUPLICATE:
            self._complete(child, birth, None, remembered=False)
        elif birth.kernel in self._judged:
            self._judged[birth.kernel].append((child, birth))
        elif (evaluation := self.context.view.evaluation(birth.kernel)) is not None:
            self._complete(child, birth, evaluation, remembered=True)
        else:
            self._judged[birth.kernel] = [(child, birth)]
            kernel = self.context.view.kernel(birth.kernel)
            self.executor.submit(JUDGE, _urgency(birth), partial(self._evaluate, kernel), self._add_verdict)
            self.announce(birth)

    def _written(self, child: Offspring, brief: Brief) -> tuple[Proposal, float]:
        """Ask a proposer for a child that carries out an idea. Called in another thread."""
        place = (child.generation, child.island)
        brief = replace(brief, choose_in_turn=partial(self.ideas.choose, place, closed=child.snapshot.closed))
        with self.ideas.being_written(place):
            return self._timed(brief)

    def _timed(self, brief: Brief) -> tuple[Proposal, float]:
        """Ask a proposer; the answer, and how many seconds it took."""
        self.deadline.check()
        started = perf_counter()
        return self.proposers[brief.operator].propose(brief), perf_counter() - started

    def _evaluate(self, kernel: Kernel) -> Evaluation:
        """Ask the judge. Called in another thread."""
        self.deadline.check()
        return self.evaluator.evaluate(self.context.problem, kernel)

    def note_idea(self, birth: Birth) -> None:
        """Note which idea a written attempt carries out, for the choices of others."""
        if birth.slot == 0 and birth.idea and self._shares_ideas and birth.operator in BY_IDEA:
            self.ideas.expect((birth.generation, birth.island), self.context.view.idea(birth.idea))

    def known_to(self, child: Offspring) -> Callable[[str], bool]:
        """Tells whether the run had a kernel when the child's generation was created, also under other names, or the
        child itself has failed with it."""
        own, closed = child.judged_attempts, child.snapshot.closed
        return lambda kernel_id: (
            any(kernel_id in (birth.kernel, birth.proposed_kernel) for birth in own)
            or self.context.view.knows(kernel_id, generation=closed)
            or self.context.view.saw(kernel_id, generation=closed)
        )

    def _has(self, child: Offspring, kernel_id: str) -> bool:
        """Whether the run had this very kernel, judged or submitted."""
        own = any(birth.kernel == kernel_id for birth in child.judged_attempts)
        return own or self.context.view.knows(kernel_id, generation=child.snapshot.closed)

    def _of_form(self, child: Offspring, form: str) -> str | None:
        """The kernel that the run had with this canonical form; None without one."""
        own = (birth.kernel for birth in child.judged_attempts if birth.canonical_hash == form and birth.kernel)
        return next(own, None) or self.context.view.with_canonical_hash(form, generation=child.snapshot.closed)

    def _likeness(self, child: Offspring, kernel: Kernel, parents: Sequence[str]) -> Likeness | None:
        """The known failure that a child repeats; None also when it could not be asked for again."""
        return self._novelty.likeness(kernel, parents, child.snapshot.failures) if self._repair_turns else None

    def _add_verdict(self, evaluation: Evaluation) -> None:
        self.context.archive.add_evaluation(evaluation)
        # Another run may have had its verdict first: that one counts, also where this run is resumed.
        evaluation = self.context.view.evaluation(evaluation.kernel) or replace(evaluation, blocks=())
        for number, (child, birth) in enumerate(self._judged.pop(evaluation.kernel)):
            self._complete(child, birth, evaluation, remembered=number > 0)
        self.announce(None)

    def _complete(self, child: Offspring, birth: Birth, evaluation: Evaluation | None, *, remembered: bool) -> None:
        """An attempt is complete. If it failed and repair turns are left, ask for a repair."""
        child.results.append(AttemptResult(birth=birth, evaluation=evaluation, remembered=remembered))
        failure = self._to_repair(child, birth, evaluation)
        if failure is None:
            child.done = True
        elif (repair := child.recorded.get(birth.slot + 1)) is not None:
            self.adopt(child, repair)
        else:
            brief = self.briefs.repair(birth, failure, memory=child.snapshot.memory, known=self.known_to(child))
            self.ask_later(child, birth.slot + 1, brief, (failure.kernel.id, *birth.parents))

    def _to_repair(self, child: Offspring, birth: Birth, evaluation: Evaluation | None) -> Failure | None:
        """What is to be repaired; None for an attempt that completes its child."""
        if birth.state is BirthState.NEAR_DUPLICATE:
            return self._near_duplicate(child, birth)
        from_model = birth.operator not in (Operator.SEED, Operator.TUNE)
        # A duplicate had its repair turns when it was new.
        fails = birth.state is BirthState.CREATED and evaluation is not None and evaluation.verdict.repairable
        turns_left = len(child.judged_attempts) <= self._repair_turns
        return self.population.failure(birth) if from_model and fails and turns_left else None

    def _near_duplicate(self, child: Offspring, birth: Birth) -> Failure | None:
        """Why a child was not judged; None if this version of kbevolve finds no likeness any more."""
        assert birth.kernel is not None, "a near-duplicate has a kernel"
        kernel = self.context.view.kernel(birth.kernel)
        like = self._likeness(child, kernel, birth.parents)
        idea = self.context.view.idea(birth.idea) if birth.idea else None
        return Failure(kernel=kernel, evaluation=like.evaluation, idea=idea, like=like) if like else None


def _urgency(birth: Birth) -> Urgency:
    return birth.generation, birth.island, birth.slot
