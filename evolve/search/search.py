"""The loop: create generations, have their children judged, close them in order; the same when a run is resumed.

A run is a pure function of its seed and of the answers of its models and judge. Generation g is created from what was
known when generation g - 1 - `lookahead` closed, and generations close in order, attempt by attempt. So neither the
number of judges nor their speed changes anything in the archive. Every fact is in the archive before anything depends
on it. A resumed run replays its closed generations and enters the open ones again: recorded attempts, evaluations and
contests are not repeated, so nothing is paid for twice.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from datetime import datetime
from typing import Any

from kbevolve.archive.records import Operator, StopReason
from kbevolve.configs.errors import Unanswered
from kbevolve.evaluators.evaluator import Confirmer, Evaluator
from kbevolve.evolve.proposers.base import Proposer
from kbevolve.evolve.proposers.seeds.seeds import GeneratedStarts, StartingKernel
from kbevolve.evolve.search.budget import Budget
from kbevolve.evolve.search.confirmation import Contests
from kbevolve.evolve.search.deadline import Deadline
from kbevolve.evolve.search.events import Event, Observer
from kbevolve.evolve.search.executor import Executor
from kbevolve.evolve.search.generations import Generations
from kbevolve.evolve.search.offspring import JUDGE, PROPOSE, Offspring, OffspringInFlight
from kbevolve.evolve.search.stopping import Stopping, window_of
from kbevolve.evolve.state.context import RunContext
from kbevolve.evolve.state.population import Population
from kbevolve.evolve.strategies import strategy_of
from kbevolve.evolve.strategies.base import lookahead_of
from kbevolve.evolve.strategies.brief_maker import BriefMaker

#: Requests to models at once, at most; endpoints refuse long before.
REQUESTS = 64
#: Seconds to wait for work in flight after Ctrl-C (nearly finished work is kept), and after an infrastructure failure
#: (answers of models are paid for, so they get longer).
INTERRUPTED_SECONDS, BROKEN_SECONDS = 2.0, 20.0


class Search:
    """The search of one run.

    Args:
        context: the run.
        proposers: the proposer of each operator; without MUTATE the run is offline.
        evaluator: the judge.
        starts: the starting kernels of each island.
        generated: waits for more starting kernels, for every island; None when there are none.
        confirmer: holds contests; None publishes first evaluations.
        width: how many kernels the judge takes at once, each in a thread of its own.
        elapsed: returns the seconds that all sessions of the run have lasted.
        observer: called at every step.
    """

    def __init__(
        self,
        context: RunContext,
        *,
        proposers: Mapping[Operator, Proposer],
        evaluator: Evaluator,
        starts: Sequence[Sequence[StartingKernel]],
        generated: GeneratedStarts | None = None,
        confirmer: Confirmer | None = None,
        width: int = 1,
        elapsed: Callable[[], float] = lambda: 0.0,
        observer: Observer | None = None,
    ) -> None:
        settings = context.settings
        self.context = context
        self.observer = observer
        self._settings = settings.search
        self._view = context.view
        self.population = Population(
            settings.search.islands, context.view, since=_paid_since(context), transfer=context.transfer
        )
        self.budget = Budget.of(settings)
        self._deadline = Deadline(limit=settings.budget.wall_seconds, elapsed=elapsed)
        #: The generation that closes next, and the children of all generations that are created and not closed.
        self._oldest = 0
        self._open: dict[int, list[Offspring]] = {}
        #: The newest generation that an earlier session has closed, and the newest of which it left an attempt.
        self._replayed, self._recorded = -1, -1
        #: Whether the observer is called: a replay is no news.
        self.live = True
        briefs = BriefMaker(
            context=context,
            population=self.population,
            operators=frozenset(proposers),
            strategy=strategy_of(settings.search),
            window=window_of(settings),
            closed=lambda: self._oldest - 1,
        )
        self._lookahead = lookahead_of(settings.search, proposers)
        requests = min(REQUESTS, settings.search.islands * (1 + self._lookahead))
        self._executor = Executor({PROPOSE: requests, JUDGE: width})
        self._offspring = OffspringInFlight(
            context=context,
            population=self.population,
            proposers=proposers,
            evaluator=evaluator,
            briefs=briefs,
            executor=self._executor,
            deadline=self._deadline,
            announce=lambda birth: self._report(birth=birth),
        )
        self._contests = Contests(
            context,
            self.population,
            confirmer,
            deadline=self._deadline,
            announce=lambda kernels: self._report(contest=kernels),
        )
        self._stopping = Stopping(
            context=context,
            population=self.population,
            budget=self.budget,
            contests=self._contests,
            deadline=self._deadline,
        )
        self.generations = Generations(
            context=context,
            population=self.population,
            briefs=briefs,
            offspring=self._offspring,
            proposers=proposers,
            starts=starts,
            generated=generated,
            contests=self._contests,
            stopping=self._stopping,
            report=lambda result, entry: self._report(
                birth=result.birth, evaluation=result.evaluation, remembered=result.remembered, entry=entry, done=True
            ),
        )

    def run(self) -> StopReason:
        """Search until there is a reason to stop, which is written to the archive.

        Raises:
            KeyboardInterrupt: the user stopped the run; everything finished is in the archive.
            ProposerError, EvaluatorError, ArchiveError: infrastructure failure; likewise.
        """
        try:
            reason = self._search()
        except KeyboardInterrupt:
            self._executor.stop(seconds=INTERRUPTED_SECONDS)
            raise
        except Exception:
            self._executor.stop(seconds=BROKEN_SECONDS)
            raise
        finally:
            self._executor.stop()
        return reason

    def _search(self) -> StopReason:
        self._recall()
        try:
            reason = self._close_generations()
            self._oldest = closed = self._oldest - 1
        except Unanswered:
            if not self._deadline.near:
                raise
            self._executor.finish()
            # The generation under way stays open, as after Ctrl-C.
            reason, closed = StopReason.WALL_TIME_SPENT, self._oldest - 1
        if reason is not StopReason.NO_SEED and closed >= 0:
            self._contests.final(closed)
        self._report()
        self.context.archive.add_stop(self.context.run.id, reason)
        return reason

    def _close_generations(self) -> StopReason:
        """Create and close generations until there is a reason to stop.

        Raises:
            Unanswered: a child waits for an answer from outside, or for something that may not begin any more.
        """
        reason: StopReason | None = None
        created = -1
        while True:
            while self._may_create(created + 1, reason):
                created += 1
                if created > self._replayed:
                    self._open[created] = self.generations.create(
                        created, closed=self._oldest - 1, recorded=created <= self._recorded
                    )
            self.live = self._oldest > self._replayed
            if self._oldest > created:
                return reason or StopReason.GENERATIONS
            if self._oldest <= self._replayed:
                self.generations.replay(self._oldest)
            else:
                self._report()
                recorded = self._oldest <= self._recorded
                self.generations.close(self._oldest, self._open.pop(self._oldest), recorded=recorded)
            # With a reason, nothing new is created, but what is open is completed and counts.
            reason = reason or self._stopping.reason(self._oldest)
            self._oldest += 1

    def _recall(self) -> None:
        """Find out how far earlier sessions have come."""
        newest, closed = self._view.last_generation(), self._view.last_ended()
        if newest is None:
            return
        # Archives of early versions do not record which generations closed: all but the newest had.
        self._recorded, self._replayed = newest, closed if closed is not None else newest - 1
        self.live = self._replayed < 0
        self._contests.recall()
        self.generations.recall_ideas(self._replayed)

    def _may_create(self, generation: int, reason: StopReason | None) -> bool:
        """Whether a generation may be created now. Those that earlier sessions began are continued in any case.

        Every child in flight may become an evaluation, so creation waits for verdicts rather than exceed the budget.
        This depends on generations alone, never on how far each child is, so that a replay agrees.
        """
        last = max(self._settings.generations, self._replayed)
        # Nothing is created before the starting kernels are judged.
        horizon = min(self._oldest + self._lookahead, last) if self._oldest else 0
        if generation > horizon:
            return False
        recorded, alone = generation <= self._recorded, generation == self._oldest
        if generation <= self._replayed or (recorded and alone):
            return True
        in_flight = (generation - self._oldest) * self._settings.islands
        return (recorded or reason is None) and self.budget.has_room(self.population.totals.evaluations + in_flight)

    def _report(self, **facts: Any) -> None:
        if self.observer is None or not self.live:
            return
        population, champion = self.population, self._contests.champions.champion
        self.observer(
            Event(
                generation=self._oldest,
                totals=deepcopy(population.totals),
                islands=tuple(
                    (island.best.evaluation.timing.speedup if island.best else None, len(island.elites))
                    for island in population.islands
                ),
                best=population.best(apart_from=self.context.reference),
                champion=champion,
                champion_note=population.note_of(champion.kernel) if champion else "",
                judging=self._offspring.judging,
                waiting=self._offspring.waiting,
                asked=self._offspring.asked,
                **facts,
            )
        )


def _paid_since(context: RunContext) -> float:
    """When evaluations began to cost this run, in seconds since 1970; 0 counts those of other runs, too."""
    if not context.run.created or context.settings.budget.known_evaluations:
        return 0.0
    return datetime.fromisoformat(context.run.created).timestamp()
