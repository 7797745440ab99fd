"""A generation: one child for every island, new or of an earlier session; then the children enter their islands.

Islands exchange kernels when a generation closes, and contests follow. Every fact is written as it happens, unless an
earlier session has written it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from kbevolve.archive.records import Birth, BirthState, Evaluation, Operator, Placement, Verdict
from kbevolve.evolve.proposers.base import Proposal, Proposer
from kbevolve.evolve.proposers.seeds.seeds import MOST_GENERATED, GeneratedStarts, StartingKernel
from kbevolve.evolve.search.confirmation import Contests
from kbevolve.evolve.search.offspring import PROPOSE, AttemptResult, GenerationSnapshot, Offspring, OffspringInFlight
from kbevolve.evolve.search.stopping import Stopping
from kbevolve.evolve.state.context import RunContext
from kbevolve.evolve.state.population import OPEN_GENERATIONS, Population
from kbevolve.evolve.strategies.brief_maker import BriefMaker
from kbevolve.islands.island import Entry
from kbevolve.islands.migration import restart, ring
from kbevolve.islands.stagnation import Stage


@dataclass(slots=True, kw_only=True)
class Generations:
    """Creates and closes the generations of one run, and replays those that earlier sessions have closed."""

    context: RunContext
    population: Population
    briefs: BriefMaker
    offspring: OffspringInFlight
    #: Proposer of each operator. That of TUNE is asked in this thread, the others concurrently.
    proposers: Mapping[Operator, Proposer]
    #: Starting kernels of each island.
    starts: Sequence[Sequence[StartingKernel]]
    #: Waits for the starting kernels that are generated, the last ones of every island; None when there are none.
    generated: GeneratedStarts | None
    contests: Contests
    stopping: Stopping
    #: Called with each result, and what it changed in its niche.
    report: Callable[[AttemptResult, Entry], None]

    def create(self, generation: int, *, closed: int, recorded: bool) -> list[Offspring]:
        """Ask for the children of all islands, except those that an earlier session may have `recorded`.

        `closed` is the newest closed generation; -1 for none.
        """
        known: dict[int, dict[int, Birth]] = {}
        for birth in self.context.view.births(generation) if recorded else ():
            known.setdefault(birth.island, {})[birth.slot] = birth
        snapshot = GenerationSnapshot(
            generation=generation,
            closed=closed,
            memory=self.population.memory(),
            failures=self.population.known_failures,
        )
        islands = range(self.context.settings.search.islands)
        if generation == 0:
            return self._create_starts(snapshot, known)
        return [self._create_child(snapshot, island, known.get(island, {})) for island in islands]

    def _create_starts(
        self, snapshot: GenerationSnapshot, recorded: Mapping[int, Mapping[int, Birth]]
    ) -> list[Offspring]:
        """The starting kernels of all islands, each a child of its own.

        The generated ones are the last of each island: the others are judged meanwhile, and their slots do not depend
        on whether those exist. The child of one that does not is complete and has no attempt.
        """
        children: list[Offspring] = []
        waiting: list[tuple[Offspring, int, int]] = []

        def add(child: Offspring, slot: int, start: StartingKernel) -> None:
            proposal = Proposal(state=BirthState.CREATED, kernel=start.kernel, note=start.note)
            self.offspring.add(child, slot, proposal, Operator.SEED)

        def add_generated(generated: Sequence[StartingKernel]) -> None:
            for child, slot, number in waiting:
                if number < len(generated):
                    add(child, slot, generated[number])
                else:
                    child.done = True

        to_come = (None,) * MOST_GENERATED if self.generated is not None else ()
        for island, starts in enumerate(self.starts):
            for slot, start in enumerate((*starts, *to_come)):
                child = Offspring(snapshot=snapshot, island=island)
                children.append(child)
                if slot in recorded.get(island, {}):
                    self.offspring.adopt(child, recorded[island][slot])
                elif start is not None:
                    add(child, slot, start)
                else:
                    waiting.append((child, slot, slot - len(starts)))
        if self.generated is not None and waiting:
            self.offspring.executor.submit(PROPOSE, (0, 0, 0), self.generated, add_generated)
        return children

    def _create_child(self, snapshot: GenerationSnapshot, island: int, recorded: Mapping[int, Birth]) -> Offspring:
        child = Offspring(snapshot=snapshot, island=island, recorded=recorded)
        if 0 in recorded:
            self.offspring.adopt(child, recorded[0])
            return child
        generation, earlier = snapshot.generation, self.offspring.known_to(child)
        view, tuner = self.context.view, self.proposers.get(Operator.TUNE)
        # Operators whose proposer is asked in this thread, in order: so each child knows the ones before it.
        in_order = [operator for operator, proposer in self.proposers.items() if proposer is tuner]

        def known(kernel_id: str) -> bool:
            # A child of a proposer in this thread is in the archive before the next child is asked for.
            return earlier(kernel_id) or view.knows_of(kernel_id, in_order, before=(generation, island))

        brief = self.briefs.brief(generation=generation, island=island, known=known)
        if brief is None:
            note = "this island has no kernel that could be a parent"
            self.offspring.add(child, 0, Proposal(state=BirthState.EXHAUSTED, note=note, parents=()), Operator.TUNE)
        else:
            ask = self.offspring.ask if brief.operator in in_order else self.offspring.ask_later
            ask(child, 0, brief, tuple(parent.kernel.id for parent in brief.parents))
        return child

    def close(self, generation: int, offspring: Sequence[Offspring], *, recorded: bool) -> None:
        """Close a generation: in the order of its attempts, each as soon as it is complete.

        An earlier session may have `recorded` placements of it.
        """
        written = set(self.context.view.placements(generation)) if recorded else set()
        for child in offspring:
            while not child.done:
                self.offspring.executor.step()
            for result in child.results:
                self.report(result, self._observe(result.birth, result.evaluation, written))
        every = self.context.settings.search.migration_every
        if generation and every and generation % every == 0:
            for migrant in ring(self.population.islands):
                self._place(migrant.target, migrant.member.kernel.id, generation, "migration", written)
        self.contests.challenge(generation)
        self._end(generation)
        self.offspring.ideas.forget(generation - OPEN_GENERATIONS)
        if self.stopping.stage is Stage.BACKTRACKING and self.population.restart_due:
            fresh = restart(self.population.islands)
            if fresh is not None:
                self._place(fresh.target, fresh.member.kernel.id, generation, "restart", written)
        if self.population.totals.verdicts[Verdict.CORRECT]:  # else another session may add other starting kernels
            self.context.archive.add_generation_end(self.context.run.id, generation)

    def recall_ideas(self, closed: int) -> None:
        """Note the ideas of the newest generations that earlier sessions have closed: later children may know their
        ideas, but not their results."""
        for generation in range(max(closed - OPEN_GENERATIONS, 0), closed + 1):
            for birth in self.context.view.births(generation):
                self.offspring.note_idea(birth)

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
