"""How a generation closes: its kernels enter their islands in order, islands exchange kernels, contests follow.

Every fact is written as it happens, unless an earlier session has written it.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from kbevolve.archive.records import Birth, Evaluation, Placement, Verdict
from kbevolve.evolve.search.confirmation import Contests
from kbevolve.evolve.search.offspring import AttemptResult, Offspring
from kbevolve.evolve.search.stopping import Stopping
from kbevolve.evolve.state.context import RunContext
from kbevolve.evolve.state.population import Population
from kbevolve.islands.island import Entry
from kbevolve.islands.migration import restart, ring
from kbevolve.islands.stagnation import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationCloser:
    """Closes the generations of one run, and replays those that earlier sessions have closed."""

    context: RunContext
    population: Population
    contests: Contests
    stopping: Stopping
    #: Waits for one result of the work in flight and handles it.
    wait: Callable[[], None]
    #: Called with each result, and what it changed in its niche.
    report: Callable[[AttemptResult, Entry], None]

    def close(self, generation: int, offspring: Sequence[Offspring], *, recorded: bool) -> None:
        """Close a generation: in the order of its attempts, each as soon as it is complete.

        Args:
            generation: which one.
            offspring: its children.
            recorded: whether an earlier session may have written placements of it.
        """
        written = set(self.context.view.placements(generation)) if recorded else set()
        for child in offspring:
            while not child.done:
                self.wait()
            for result in child.results:
                self.report(result, self._observe(result.birth, result.evaluation, written))
        every = self.context.settings.search.migration_every
        if generation and every and generation % every == 0:
            for migrant in ring(self.population.islands):
                self._place(migrant.target, migrant.member.kernel.id, generation, "migration", written)
        self.contests.challenge(generation)
        self._end(generation)
        if self.stopping.stage is Stage.BACKTRACKING and self.population.restart_due:
            fresh = restart(self.population.islands)
            if fresh is not None:
                self._place(fresh.target, fresh.member.kernel.id, generation, "restart", written)
        if self.population.totals.verdicts[Verdict.CORRECT]:  # else another session may add other starting kernels
            self.context.archive.add_generation_end(self.context.run.id, generation)

    def replay(self, generation: int) -> None:
        """Bring the population to where it was after a closed generation."""
        placements = self.context.view.placements(generation)
        placed = {(one.island, one.kernel) for one in placements if one.via == "birth"}
        for birth, evaluation in self.context.view.verdicts(generation):
            self.population.recall(birth, evaluation, placed=(birth.island, birth.kernel) in placed)
        for one in placements:
            if one.via == "migration":
                self.population.enter(one.island, one.kernel)
        self._end(generation)
        for one in placements:
            if one.via == "restart":
                self.population.restart(one.island, one.kernel)

    def _end(self, generation: int) -> None:
        """What is published by now decides whether the run stagnates."""
        published = self.context.view.published(generation) if self.contests.held else None
        self.population.end_generation(published=published, contests=self.contests.held)

    def _observe(self, birth: Birth, evaluation: Evaluation | None, written: Collection[Placement]) -> Entry:
        """Add an attempt to the population; a correct kernel enters its island."""
        self.population.observe(birth, evaluation)
        if birth.kernel is None or evaluation is None or evaluation.verdict is not Verdict.CORRECT:
            return Entry.NONE
        self.contests.consider(evaluation)
        return self._place(birth.island, birth.kernel, birth.generation, "birth", written)

    def _place(self, island: int, kernel_id: str, generation: int, via: str, written: Collection[Placement]) -> Entry:
        """Let a kernel enter an island, and write the niche that it takes."""
        enter = self.population.restart if via == "restart" else self.population.enter
        entry, niche = enter(island, kernel_id)
        placement = Placement(
            run=self.context.run.id, island=island, niche=niche, kernel=kernel_id, generation=generation, via=via
        )
        if entry is not Entry.NONE and placement not in written:
            self.context.archive.add_placement(placement)
        return entry
