"""How a generation closes: its kernels enter their islands in order, islands exchange kernels, contests follow.

Every fact is written as it happens, unless an earlier session has written it.
"""

from collections.abc import Callable, Collection, Sequence

from kbevolve.archive.records import Birth, Evaluation, Placement, Verdict
from kbevolve.evolve.search.confirmation import Contests
from kbevolve.evolve.search.offspring import AttemptResult, Offspring
from kbevolve.evolve.search.stopping import Stopping
from kbevolve.evolve.state.context import RunContext
from kbevolve.evolve.state.population import Population
from kbevolve.islands.island import Entry
from kbevolve.islands.migration import restart, ring
from kbevolve.islands.stagnation import Stage


class GenerationCloser:
    """Closes the generations of one run, and replays those that earlier sessions have closed.

    Args:
        context: the run.
        population: learns every result.
        contests: held after each generation.
        stopping: tells the stage of the run.
        wait: handles one result of the work in flight.
        report: called with each result and what it changed in its niche.
    """

    def __init__(
        self,
        context: RunContext,
        *,
        population: Population,
        contests: Contests,
        stopping: Stopping,
        wait: Callable[[], None],
        report: Callable[[AttemptResult, Entry], None],
    ) -> None:
        self._context = context
        self._view = context.view
        self._population = population
        self._contests = contests
        self._stopping = stopping
        self._wait = wait
        self._report = report

    def close(self, generation: int, offspring: Sequence[Offspring], *, recorded: bool) -> None:
        """Close a generation: in the order of its attempts, each as soon as it is complete.

        Args:
            generation: which one.
            offspring: its children.
            recorded: whether an earlier session may have written placements of it.
        """
        written = set(self._view.placements(generation)) if recorded else set()
        for child in offspring:
            while not child.done:
                self._wait()
            for result in child.results:
                self._report(result, self._observe(result.birth, result.evaluation, written))
        every = self._context.settings.search.migration_every
        if generation and every and generation % every == 0:
            for migrant in ring(self._population.islands):
                self._place(migrant.target, migrant.member.kernel.id, generation, "migration", written)
        self._contests.challenge(generation)
        self._end(generation)
        if self._stopping.stage is Stage.BACKTRACKING and self._population.restart_due:
            fresh = restart(self._population.islands)
            if fresh is not None:
                self._place(fresh.target, fresh.member.kernel.id, generation, "restart", written)
        if self._population.totals.verdicts[Verdict.CORRECT]:  # else another session may add other starting kernels
            self._context.archive.add_generation_end(self._context.run.id, generation)

    def replay(self, generation: int) -> None:
        """Bring the population to where it was after a closed generation."""
        placements = self._view.placements(generation)
        placed = {(one.island, one.kernel) for one in placements if one.via == "birth"}
        for birth, evaluation in self._view.verdicts(generation):
            self._population.recall(birth, evaluation, placed=(birth.island, birth.kernel) in placed)
        for one in placements:
            if one.via == "migration":
                self._population.enter(one.island, one.kernel)
        self._end(generation)
        for one in placements:
            if one.via == "restart":
                self._population.restart(one.island, one.kernel)

    def _end(self, generation: int) -> None:
        """What is published by now decides whether the run stagnates."""
        published = self._view.published(generation) if self._contests.held else None
        self._population.end_generation(published=published, contests=self._contests.held)

    def _observe(self, birth: Birth, evaluation: Evaluation | None, written: Collection[Placement]) -> Entry:
        """Add an attempt to the population; a correct kernel enters its island."""
        self._population.observe(birth, evaluation)
        if birth.kernel is None or evaluation is None or evaluation.verdict is not Verdict.CORRECT:
            return Entry.NONE
        self._contests.consider(evaluation)
        return self._place(birth.island, birth.kernel, birth.generation, "birth", written)

    def _place(self, island: int, kernel_id: str, generation: int, via: str, written: Collection[Placement]) -> Entry:
        """Let a kernel enter an island, and write the niche that it takes."""
        enter = self._population.restart if via == "restart" else self._population.enter
        entry, niche = enter(island, kernel_id)
        placement = Placement(
            run=self._context.run.id, island=island, niche=niche, kernel=kernel_id, generation=generation, via=via
        )
        if entry is not Entry.NONE and placement not in written:
            self._context.archive.add_placement(placement)
        return entry
