"""The loop: breed generations, have their children judged, close them in order; and again when a run is resumed.

A run is a pure function of its seed and of the judge's answers. Generation g is bred on what was known when generation
g - 1 - `lookahead` was closed, and generations close in order, birth by birth: so neither how many children are judged
at once, nor which of them is through first, changes anything in the archive. Every fact is in the archive before
anything rests on it. Resuming replays the generations that were closed and enters the open ones again: births that are
there are not asked for, evaluations and contests that are there are not made, so nothing is paid for twice.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from kbevolve.archive.records import (
    Birth,
    BirthState,
    Evaluation,
    Kernel,
    Operator,
    Placement,
    ProblemCard,
    Run,
    StopReason,
    Verdict,
)
from kbevolve.archive.store import Archive
from kbevolve.configs.problem import Problem
from kbevolve.configs.reference import as_model_new
from kbevolve.configs.settings import Settings
from kbevolve.evaluators.evaluator import Confirmer, Evaluator
from kbevolve.evolve.proposers.base import KernelTask, Proposal, Proposer
from kbevolve.evolve.proposers.seeds.seeds import StartingKernel
from kbevolve.evolve.search.budget import Budget
from kbevolve.evolve.search.confirming import Confirming
from kbevolve.evolve.search.events import Event, Observer
from kbevolve.evolve.search.executor import Crew
from kbevolve.evolve.search.offspring import ASKING, JUDGING, Brood, Child, Outlook
from kbevolve.evolve.search.stopping import Stopping, window_of
from kbevolve.evolve.state.population import Population
from kbevolve.evolve.state.transfer import TransferredKnowledge
from kbevolve.evolve.strategies import breeder_of
from kbevolve.evolve.strategies.evolve import Breeding
from kbevolve.islands.island import Entry
from kbevolve.islands.migration import restart, ring
from kbevolve.islands.stagnation import Stage

#: Threads that ask models at once, at most: endpoints refuse more long before.
ASKERS = 64
#: Seconds that children under way are waited for when the user has had enough (those nearly through are kept), and
#: when the rig is broken: then answers of models that are paid for are worth more.
INTERRUPTED_SECONDS, BROKEN_SECONDS = 2.0, 20.0


class Search:
    """One run.

    Args:
        archive: where everything is written, and what a resumed run is read from.
        run: the run's record, already in the archive.
        problem: its problem.
        device_type: "cpu" or "cuda".
        device: one line about the device, for prompts.
        settings: all settings.
        proposers: who carries out which operator; without MUTATE the run is an offline one. The one for TUNE is asked
            in this thread, the others side by side.
        evaluator: the judge.
        starts: the starting kernels of each island.
        card: what the judge found out about the problem, for prompts.
        transfer: knowledge from other problems, the same in all sessions of the run; None for nothing.
        confirmer: measures would-be champions again; None publishes what the first evaluation found.
        width: how many kernels the judge may be asked about at once, each in a thread of its own.
        elapsed: tells how many seconds all sittings at this run have lasted by now.
        observer: told of every step.
    """

    def __init__(
        self,
        *,
        archive: Archive,
        run: Run,
        problem: Problem,
        device_type: str,
        device: str,
        settings: Settings,
        proposers: Mapping[Operator, Proposer],
        evaluator: Evaluator,
        starts: Sequence[Sequence[StartingKernel]],
        card: ProblemCard | None = None,
        transfer: TransferredKnowledge | None = None,
        confirmer: Confirmer | None = None,
        width: int = 1,
        elapsed: Callable[[], float] = lambda: 0.0,
        observer: Observer = lambda event: None,
    ) -> None:
        self.archive = archive
        self.record = run
        self.settings = settings.search
        self.proposers = proposers
        self.starts = starts
        self.observer = observer
        self.ledger = archive.ledger(run)
        # From 0 on, what other runs had judged counts, too.
        others = not run.created or settings.budget.known_evaluations
        since = 0.0 if others else datetime.fromisoformat(run.created).timestamp()
        given = transfer or TransferredKnowledge()
        self.population = Population(self.settings.islands, self.ledger, since=since, elsewhere=given.tallies)
        self.budget = Budget.of(settings)
        self.elapsed = elapsed
        self.breeding = Breeding(
            task=KernelTask(problem=problem, device_type=device_type, device=device, card=card),
            settings=self.settings,
            proposers=proposers,
            transfer=given,
            window=window_of(settings),
        )
        #: The generation that closes next, and the children of all that were bred and are not closed.
        self._closing = 0
        self._open: dict[int, list[Child]] = {}
        self.breeder = breeder_of(
            self.settings,
            self.breeding,
            breeding=self.breeding,
            ledger=self.ledger,
            closed=lambda: self._closing - 1,
        )
        askers = min(ASKERS, self.settings.islands * (1 + self.settings.lookahead))
        self._crew = Crew({ASKING: askers, JUDGING: width})
        self.brood = Brood(
            archive=archive,
            run=run,
            ledger=self.ledger,
            problem=problem,
            evaluator=evaluator,
            proposers=proposers,
            breeding=self.breeding,
            population=self.population,
            repair_turns=self.settings.repair_turns,
            crew=self._crew,
            width=width,
            announce=lambda birth: self._tell(birth=birth),
        )
        reference = Kernel.from_source(as_model_new(problem.source_for(device_type))).id
        self._contests = confirmer is not None and settings.evaluation.confirm_rounds > 0
        self.confirming = Confirming(
            archive=archive,
            run=run,
            problem=problem,
            confirmer=confirmer,
            settings=settings.evaluation,
            reference=reference,
            announce=lambda kernels: self._tell(contest=kernels),
        )
        self.stopping = Stopping(
            population=self.population,
            ledger=self.ledger,
            budget=self.budget,
            confirming=self.confirming if self._contests else None,
            reference=reference,
            window=self.breeding.window,
            elapsed=lambda: self.elapsed(),
        )
        #: Operators that are carried out in this thread, in order: their children may know each other.
        self._own = [operator for operator in proposers if proposers[operator] is proposers.get(Operator.TUNE)]
        #: The newest generation that an earlier sitting has closed, and the newest of which it left a birth.
        self._replayed, self._left = -1, -1
        #: Whether anybody watches: nothing that is replayed is news.
        self._heard = True

    def run(self) -> StopReason:
        """Breed until there is a reason to stop, which is written into the archive, too.

        Raises:
            KeyboardInterrupt: the user had enough; everything that was finished is in the archive.
            ProposerError, EvaluatorError, ArchiveError: the rig is broken; likewise.
        """
        self._remember()
        reason: StopReason | None = None
        bred = -1
        try:
            while True:
                while self._may_breed(bred + 1, reason):
                    bred += 1
                    self._breed(bred)
                self._heard = self._closing > self._replayed
                if self._closing > bred:
                    break
                if self._closing <= self._replayed:
                    self._replay(self._closing)
                else:
                    self._close(self._closing)
                # Once there is a reason, nothing new is bred; what is open already gets through and counts.
                reason = reason or self.stopping.reason(self._closing)
                self._closing += 1
            reason, self._closing = reason or StopReason.GENERATIONS, bred
            if reason is not StopReason.NO_SEED:
                self.confirming.final(self.population, bred)
            self._tell()
            self.archive.add_stop(self.record.id, reason)
        except KeyboardInterrupt:
            self._crew.stop(seconds=INTERRUPTED_SECONDS)
            raise
        except Exception:
            self._crew.stop(seconds=BROKEN_SECONDS)
            raise
        finally:
            self._crew.stop()
        return reason

    def _horizon(self) -> int:
        """The newest generation that may be bred by now; nothing is bred before the starting kernels are judged."""
        last = max(self.settings.generations, self._replayed)
        return 0 if self._closing == 0 else min(self._closing + self.settings.lookahead, last)

    def _may_breed(self, generation: int, reason: StopReason | None) -> bool:
        """Whether a generation may be bred by now. What earlier sittings began is gone through in any case.

        Every child under way may become an evaluation: breeding waits for their verdicts rather than ask for more than
        the budget has. That rests on generations alone, never on how far each child is, so that a replay agrees.
        """
        if generation > self._horizon():
            return False
        begun, alone = generation <= self._left, generation == self._closing
        if generation <= self._replayed or (begun and alone):
            return True
        under_way = (generation - self._closing) * self.settings.islands
        return (begun or reason is None) and self.budget.has_room(self.population.evaluations + under_way)

    # ---- before: what the archive knows ----------------------------------------------------------------------------

    def _remember(self) -> None:
        left, closed = self.ledger.last_generation(), self.ledger.last_ended()
        if left is None:
            return
        # An archive of a time when closings were not written down yet: every generation but the last one was over.
        self._left, self._replayed = left, closed if closed is not None else left - 1
        self._heard = self._replayed < 0
        failed = self.archive.failed(self.record.id)
        confirmed = [one for one in self.archive.confirmations(self.record.id) if one.kernel not in failed]
        self.stopping.remember(confirmed, replayed=self._replayed)
        self.confirming.recall()

    def _replay(self, generation: int) -> None:
        """Tell the population of a generation that was closed."""
        placements = self.ledger.placements(generation)
        placed = {(one.island, one.kernel) for one in placements if one.via == "birth"}
        for birth, evaluation in self.ledger.verdicts(generation):
            self.population.recall(birth, evaluation, placed=(birth.island, birth.kernel) in placed)
        for one in placements:
            if one.via == "migration":
                self.population.enter(one.island, one.kernel)
        self._end(generation)
        for one in placements:
            if one.via == "restart":
                self.population.restart(one.island, one.kernel)

    def _end(self, generation: int) -> None:
        """A generation is over: what it has to show decides whether the run stagnates."""
        published = self.ledger.published(generation) if self._contests else None
        self.population.end_generation(published=published, contests=self._contests)

    # ---- breed -----------------------------------------------------------------------------------------------------

    def _breed(self, generation: int) -> None:
        """Have every island's child asked for or, in an open generation of an earlier sitting, taken up again."""
        if generation <= self._replayed:
            return
        recorded: dict[int, dict[int, Birth]] = {}
        for birth in self.ledger.births(generation) if generation <= self._left else ():
            recorded.setdefault(birth.island, {})[birth.slot] = birth
        outlook = Outlook(
            generation=generation,
            closed=self._closing - 1,
            tried=self.population.tried(),
            memory=self.population.memory(),
            blunders=self.population.blunders(),
        )
        children = self._open[generation] = []
        for island in range(self.settings.islands):
            known = recorded.get(island, {})
            if generation == 0:
                children += self._begin(outlook, island, known)
                continue
            child = Child(outlook=outlook, island=island, recorded=known)
            children.append(child)
            if 0 in known:
                self.brood.adopt(child, known[0])
            else:
                self._ask(child)

    def _begin(self, outlook: Outlook, island: int, recorded: Mapping[int, Birth]) -> list[Child]:
        """The starting kernels of an island, each a child of its own."""
        children = []
        for slot, start in enumerate(self.starts[island]):
            child = Child(outlook=outlook, island=island)
            children.append(child)
            if slot in recorded:
                self.brood.adopt(child, recorded[slot])
            else:
                proposal = Proposal(state=BirthState.CREATED, kernel=start.kernel, note=start.note)
                self.brood.bear(child, slot, proposal, Operator.SEED, ())
        return children

    def _ask(self, child: Child) -> None:
        generation, island = child.outlook.generation, child.island
        own = self.brood.known_to(child)

        def known(kernel_id: str) -> bool:
            # Children of the operators carried out here are known at once: an archive holds them before the next.
            return own(kernel_id) or self.ledger.knows_of(kernel_id, self._own, before=(generation, island))

        brief = self.breeder.brief(self.population, generation=generation, island=island, known=known)
        if brief is None:
            note = "no kernel on this island that could breed"
            nothing = Proposal(state=BirthState.EXHAUSTED, note=note, parents=())
            self.brood.bear(child, 0, nothing, Operator.TUNE, ())
            return
        parents = tuple(parent.kernel.id for parent in brief.parents)
        ask = self.brood.ask if brief.operator in self._own else self.brood.ask_crew
        ask(child, 0, brief, parents)

    # ---- close -----------------------------------------------------------------------------------------------------

    def _close(self, generation: int) -> None:
        """Tell the population of a generation in the order of its births, as they get through; then share and confirm.

        Everything is written down as it happens, unless an earlier sitting has done so.
        """
        self._tell()
        written = set(self.ledger.placements(generation)) if generation <= self._left else set()
        for child in self._open[generation]:
            while not child.done:
                self._crew.step()
            for found in child.found:
                entry = self._take_note(found.birth, found.evaluation, written)
                self._tell(
                    birth=found.birth,
                    evaluation=found.evaluation,
                    remembered=found.remembered,
                    entry=entry,
                    done=True,
                )
        every = self.settings.migration_every
        if generation and every and generation % every == 0:
            for migrant in ring(self.population.islands):
                self._settle(migrant.target, migrant.member.kernel.id, generation, "migration", written)
        self.confirming.challenge(self.population, generation)
        self._end(generation)
        if (
            self.stopping.stage is Stage.BACKTRACKING
            and self.population.due
            and (fresh := restart(self.population.islands))
        ):
            self._settle(fresh.target, fresh.member.kernel.id, generation, "restart", written)
        del self._open[generation]
        if self.population.verdicts[Verdict.CORRECT]:  # else another sitting may bring other starting kernels
            self.archive.add_generation_end(self.record.id, generation)

    def _take_note(self, birth: Birth, evaluation: Evaluation | None, written: set[Placement]) -> Entry:
        """Tell the population of a birth; a correct kernel arrives on its island."""
        self.population.observe(birth, evaluation)
        if birth.kernel is None or evaluation is None or evaluation.verdict is not Verdict.CORRECT:
            return Entry.NONE
        self.confirming.consider(evaluation)
        return self._settle(birth.island, birth.kernel, birth.generation, "birth", written)

    def _settle(self, island: int, kernel_id: str, generation: int, via: str, written: set[Placement]) -> Entry:
        """Let a kernel arrive on an island, and write down the niche it took, unless that is written already."""
        arrive = self.population.restart if via == "restart" else self.population.enter
        entry, niche = arrive(island, kernel_id)
        placement = Placement(
            run=self.record.id, island=island, niche=niche, kernel=kernel_id, generation=generation, via=via
        )
        if entry is not Entry.NONE and placement not in written:
            self.archive.add_placement(placement)
        return entry

    def _tell(self, **facts: Any) -> None:
        if self._heard:
            self.observer(
                Event(
                    generation=self._closing,
                    population=self.population,
                    champion=self.confirming.champion,
                    judging=self.brood.judging,
                    waiting=self.brood.waiting,
                    asked=self.brood.asked,
                    **facts,
                )
            )
