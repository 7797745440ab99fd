"""The children under way, of all open generations: asked for, judged, and mended while they fail.

Each child goes its way alone, as fast as its models and its judge are. What it is told on that way was fixed when its
generation was bred, so how it ends does not depend on how fast the others are. All of this runs in the loop's thread;
only asking and judging themselves are done by the crew.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter

from kbevolve.archive.records import Birth, BirthState, Evaluation, Idea, Kernel, Operator, Run
from kbevolve.archive.run_view import Ledger
from kbevolve.archive.store import Archive
from kbevolve.configs.problem import Problem
from kbevolve.evaluators.evaluator import Evaluator
from kbevolve.evolve.proposers.base import Brief, Proposal, Proposer
from kbevolve.evolve.search.executor import Crew, Urgency
from kbevolve.evolve.state.attempts import Failure, Likeness
from kbevolve.evolve.state.duplicates import COMPARED, Novelty
from kbevolve.evolve.state.knowledge import Memory
from kbevolve.evolve.state.population import Population
from kbevolve.evolve.strategies.evolve import Breeding
from kbevolve.islands.source.canonical import canonical_id

#: Names of the crew's teams.
ASKING, JUDGING = "ask", "judge"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What was known when a generation was bred, as far as its children ask for it later."""

    generation: int
    #: The newest generation that was over then; -1 for none.
    closed: int
    tried: Mapping[Idea, float | None]
    memory: Memory
    #: Kernels that failed or were slow, by id (`evolve.state.duplicates`).
    blunders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A birth and what the judge found about its kernel."""

    birth: Birth
    #: None when the birth has no kernel, or none that was judged. Without blocks: they are in the archive.
    evaluation: Evaluation | None
    #: Whether nobody had to judge it now.
    remembered: bool


@dataclass(slots=True, kw_only=True)
class Child:
    """What an island bears in one generation: a birth, and its repairs while it fails."""

    outlook: Outlook
    island: int
    #: What is through, the first birth first.
    found: list[Found] = field(default_factory=list)
    #: Births that the archive holds from an earlier sitting, by slot.
    recorded: Mapping[int, Birth] = field(default_factory=dict)
    #: Whether nothing more will come of it.
    done: bool = False


class Brood:
    """The children under way of one run.

    Args:
        archive: where births and evaluations are written.
        run: the run's record.
        ledger: what the archive holds of it.
        problem: its problem.
        evaluator: the judge; asked by as many threads as the crew has for it.
        proposers: who carries out which operator.
        breeding: makes the briefs of repairs.
        population: asked for parents and failures.
        repair_turns: how often a child that fails is mended; 0 also asks for no child once more.
        crew: who asks and judges.
        width: how many judge at once.
        announce: told of every birth that is about to be judged, and with None of every other change in what is under
            way.
    """

    def __init__(
        self,
        *,
        archive: Archive,
        run: Run,
        ledger: Ledger,
        problem: Problem,
        evaluator: Evaluator,
        proposers: Mapping[Operator, Proposer],
        breeding: Breeding,
        population: Population,
        repair_turns: int,
        crew: Crew,
        width: int,
        announce: Callable[[Birth | None], None],
    ) -> None:
        self._archive = archive
        self._run = run
        self._ledger = ledger
        self._problem = problem
        self._evaluator = evaluator
        self._proposers = proposers
        self._breeding = breeding
        self._population = population
        self._repair_turns = repair_turns if Operator.REPAIR in proposers else 0
        self._crew = crew
        self._width = width
        self._announce = announce
        self._novelty = Novelty(ledger)
        #: Kernel id -> the births that wait for its verdict; the first one had it judged.
        self._judged: dict[str, list[tuple[Child, Birth]]] = {}
        #: How many children are being asked for.
        self.asked = 0

    # ---- what the display asks -------------------------------------------------------------------------------------

    @property
    def judging(self) -> tuple[Birth, ...]:
        """The births that are being judged, the most urgent first."""
        return tuple(self._in_hand())[: self._width]

    @property
    def waiting(self) -> int:
        """How many kernels wait for a judge."""
        return max(len(self._judged) - self._width, 0)

    def _in_hand(self) -> Iterator[Birth]:
        births = [waiting[0][1] for waiting in self._judged.values()]
        return iter(sorted(births, key=_urgency))

    # ---- asked and born --------------------------------------------------------------------------------------------

    def bear(self, child: Child, slot: int, proposal: Proposal, operator: Operator, parents: tuple[str, ...]) -> None:
        """A child whose proposal is there already, or was never asked for."""
        self._born(child, slot, proposal, operator, parents, 0.0)

    def ask(self, child: Child, slot: int, brief: Brief, parents: tuple[str, ...]) -> None:
        """Ask for a child now, in this thread: its proposer takes milliseconds, or must not be asked side by side."""
        proposal, seconds = _timed(self._proposers[brief.operator], brief)
        self._born(child, slot, proposal, brief.operator, parents, seconds)

    def ask_crew(self, child: Child, slot: int, brief: Brief, parents: tuple[str, ...]) -> None:
        """Ask a model for a child, beside all others; the answer is in the archive as soon as it is here."""

        def answered(answer: tuple[Proposal, float]) -> None:
            self.asked -= 1
            self._born(child, slot, answer[0], brief.operator, parents, answer[1])

        self.asked += 1
        urgency = (child.outlook.generation, child.island, slot)
        brief = replace(brief, child="g{}/i{}/s{}".format(*urgency))
        self._crew.give(ASKING, urgency, partial(_timed, self._proposers[brief.operator], brief), answered)
        self._announce(None)

    def adopt(self, child: Child, birth: Birth) -> None:
        """A birth that is in the archive: have its kernel judged, unless it was, or is not worth it."""
        if birth.kernel is None or birth.state is BirthState.NEAR_DUPLICATE:
            self._settle(child, birth, None, remembered=False)
        elif birth.kernel in self._judged:
            self._judged[birth.kernel].append((child, birth))
        elif (evaluation := self._ledger.evaluation(birth.kernel)) is not None:
            self._settle(child, birth, evaluation, remembered=True)
        else:
            self._judged[birth.kernel] = [(child, birth)]
            kernel = self._ledger.kernel(birth.kernel)
            self._crew.give(
                JUDGING, _urgency(birth), partial(self._evaluator.evaluate, self._problem, kernel), self._verdict
            )
            self._announce(birth)

    def _born(
        self,
        child: Child,
        slot: int,
        proposal: Proposal,
        operator: Operator,
        parents: tuple[str, ...],
        seconds: float,
    ) -> None:
        """Write a birth down before anything is run.

        A duplicate is a kernel that the run had when the generation was bred: twins among the children under way
        depend on the order of the answers, and a resumed run must find what the undisturbed one found.
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
            run=self._run.id,
            generation=child.outlook.generation,
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
            model_alias=proposal.author,
            prompt_tokens=proposal.prompt_tokens,
            completion_tokens=proposal.completion_tokens,
            seconds=round(seconds, 3),
        )
        self._archive.add_birth(birth, kernel=kernel, idea=idea)
        self.adopt(child, replace(birth, prompt="", reply=""))

    def known_to(self, child: Child) -> Callable[[str], bool]:
        """Whether a kernel was there when a child's generation was bred, or is one of its own that failed.

        Kernels that were there under other names count.
        """
        own = _own(child)
        closed = child.outlook.closed
        return lambda kernel_id: (
            any(kernel_id in (birth.kernel, birth.proposed_kernel) for birth in own)
            or self._ledger.knows(kernel_id, generation=closed)
            or self._ledger.saw(kernel_id, generation=closed)
        )

    def _has(self, child: Child, kernel_id: str) -> bool:
        """Whether this very kernel was there, judged or about to be."""
        own = any(birth.kernel == kernel_id for birth in _own(child))
        return own or self._ledger.knows(kernel_id, generation=child.outlook.closed)

    def _of_form(self, child: Child, form: str) -> str | None:
        """The kernel of this form that was there; None when there was none."""
        own = (birth.kernel for birth in _own(child) if birth.canonical_hash == form and birth.kernel)
        return next(own, None) or self._ledger.with_canonical_hash(form, generation=child.outlook.closed)

    def _likeness(self, child: Child, kernel: Kernel, parents: Sequence[str]) -> Likeness | None:
        """The failure that a child repeats, if it can be asked for once more."""
        return self._novelty.likeness(kernel, parents, child.outlook.blunders) if self._repair_turns else None

    # ---- judged and mended -----------------------------------------------------------------------------------------

    def _verdict(self, evaluation: Evaluation) -> None:
        self._archive.add_evaluation(evaluation)
        evaluation = replace(evaluation, blocks=())
        for number, (child, birth) in enumerate(self._judged.pop(evaluation.kernel)):
            self._settle(child, birth, evaluation, remembered=number > 0)
        self._announce(None)

    def _settle(self, child: Child, birth: Birth, evaluation: Evaluation | None, *, remembered: bool) -> None:
        """A birth is through; a child that failed is mended as long as repair turns are left."""
        child.found.append(Found(birth=birth, evaluation=evaluation, remembered=remembered))
        made_by_model = birth.operator not in (Operator.SEED, Operator.TUNE)
        fresh = birth.state is BirthState.CREATED  # a duplicate had its turns when it was born
        fails = evaluation is not None and evaluation.verdict.repairable
        turns = sum(one.birth.state is not BirthState.NEAR_DUPLICATE for one in child.found)
        failure: Failure | None = None
        if birth.state is BirthState.NEAR_DUPLICATE:
            failure = self._familiar(child, birth)
        elif made_by_model and fresh and fails and turns <= self._repair_turns:
            failure = self._population.failure(birth)
        if failure is None:
            child.done = True
        elif (mended := child.recorded.get(birth.slot + 1)) is not None:
            self.adopt(child, mended)
        else:
            brief = self._breeding.repair(
                self._population,
                birth,
                failure,
                tried=child.outlook.tried,
                memory=child.outlook.memory,
                known=self.known_to(child),
            )
            assert birth.kernel is not None, "only a birth with a kernel can have failed"
            self.ask_crew(child, birth.slot + 1, brief, (birth.kernel, *birth.parents))

    def _familiar(self, child: Child, birth: Birth) -> Failure | None:
        """What is wrong with a child that nobody judged; None when this kbevolve no longer finds anything wrong."""
        assert birth.kernel is not None, "a familiar child is a kernel"
        kernel = self._ledger.kernel(birth.kernel)
        like = self._likeness(child, kernel, birth.parents)
        idea = self._ledger.idea(birth.idea) if birth.idea else None
        return Failure(kernel=kernel, evaluation=like.evaluation, idea=idea, like=like) if like else None


def _own(child: Child) -> list[Birth]:
    """A child's births whose kernels the run has by now: those of which nobody would judge the first are none."""
    return [found.birth for found in child.found if found.birth.state is not BirthState.NEAR_DUPLICATE]


def _timed(proposer: Proposer, brief: Brief) -> tuple[Proposal, float]:
    started = perf_counter()
    return proposer.propose(brief), perf_counter() - started


def _urgency(birth: Birth) -> Urgency:
    return birth.generation, birth.island, birth.slot
