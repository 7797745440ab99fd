"""How a generation is created: one child for every island, new or continued from an earlier session."""

from collections.abc import Mapping, Sequence

from kbevolve.archive.records import Birth, BirthState, Operator
from kbevolve.evolve.proposers.base import Proposal, Proposer
from kbevolve.evolve.proposers.seeds.seeds import StartingKernel
from kbevolve.evolve.search.offspring import GenerationSnapshot, Offspring, OffspringInFlight
from kbevolve.evolve.state.context import RunContext
from kbevolve.evolve.state.population import Population
from kbevolve.evolve.strategies.brief_maker import BriefMaker


class GenerationCreator:
    """Creates the generations of one run.

    Args:
        context: the run.
        population: what it knows.
        briefs: makes the briefs.
        offspring: takes the new children.
        proposers: the proposer of each operator. That of TUNE is asked in this thread, the others concurrently.
        starts: the starting kernels of each island.
    """

    def __init__(
        self,
        context: RunContext,
        *,
        population: Population,
        briefs: BriefMaker,
        offspring: OffspringInFlight,
        proposers: Mapping[Operator, Proposer],
        starts: Sequence[Sequence[StartingKernel]],
    ) -> None:
        self._islands = context.settings.search.islands
        self._view = context.view
        self._population = population
        self.briefs = briefs
        self._offspring = offspring
        self.proposers = proposers
        self.starts = starts
        #: Operators whose proposer is asked in this thread, in order: so each child knows the ones before it.
        self._in_order = [one for one in proposers if proposers[one] is proposers.get(Operator.TUNE)]

    def create(self, generation: int, *, closed: int, recorded: bool) -> list[Offspring]:
        """Ask for the children of all islands.

        Args:
            generation: the new generation.
            closed: the newest closed one; -1 for none.
            recorded: whether an earlier session may have left attempts of it. These are not asked for again.
        """
        known: dict[int, dict[int, Birth]] = {}
        for birth in self._view.births(generation) if recorded else ():
            known.setdefault(birth.island, {})[birth.slot] = birth
        snapshot = GenerationSnapshot(
            generation=generation,
            closed=closed,
            memory=self._population.memory(),
            failures=self._population.known_failures(),
        )
        create = self._create_starts if generation == 0 else self._create_child
        return [child for island in range(self._islands) for child in create(snapshot, island, known.get(island, {}))]

    def _create_starts(
        self, snapshot: GenerationSnapshot, island: int, recorded: Mapping[int, Birth]
    ) -> list[Offspring]:
        """The starting kernels of an island, each a child of its own."""
        children = []
        for slot, start in enumerate(self.starts[island]):
            child = Offspring(snapshot=snapshot, island=island)
            children.append(child)
            if slot in recorded:
                self._offspring.adopt(child, recorded[slot])
            else:
                proposal = Proposal(state=BirthState.CREATED, kernel=start.kernel, note=start.note)
                self._offspring.add(child, slot, proposal, Operator.SEED)
        return children

    def _create_child(
        self, snapshot: GenerationSnapshot, island: int, recorded: Mapping[int, Birth]
    ) -> list[Offspring]:
        child = Offspring(snapshot=snapshot, island=island, recorded=recorded)
        if 0 in recorded:
            self._offspring.adopt(child, recorded[0])
        else:
            self._ask(child)
        return [child]

    def _ask(self, child: Offspring) -> None:
        generation, island = child.generation, child.island
        earlier = self._offspring.known_to(child)

        def known(kernel_id: str) -> bool:
            # A child of a proposer in this thread is in the archive before the next child is asked for.
            return earlier(kernel_id) or self._view.knows_of(kernel_id, self._in_order, before=(generation, island))

        brief = self.briefs.brief(generation=generation, island=island, known=known)
        if brief is None:
            note = "this island has no kernel that could be a parent"
            self._offspring.add(child, 0, Proposal(state=BirthState.EXHAUSTED, note=note, parents=()), Operator.TUNE)
            return
        parents = tuple(parent.kernel.id for parent in brief.parents)
        ask = self._offspring.ask if brief.operator in self._in_order else self._offspring.ask_later
        ask(child, 0, brief, parents)
