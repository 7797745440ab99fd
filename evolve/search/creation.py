"""How a generation is created: one child for every island, new or continued from an earlier session."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kbevolve.archive.records import Birth, BirthState, Operator
from kbevolve.evolve.proposers.base import Proposal, Proposer
from kbevolve.evolve.proposers.seeds.seeds import StartingKernel
from kbevolve.evolve.search.offspring import GenerationSnapshot, Offspring, OffspringInFlight
from kbevolve.evolve.state.context import RunContext
from kbevolve.evolve.state.population import Population
from kbevolve.evolve.strategies.brief_maker import BriefMaker


@dataclass(slots=True, kw_only=True)
class GenerationCreator:
    """Creates the generations of one run."""

    context: RunContext
    population: Population
    briefs: BriefMaker
    offspring: OffspringInFlight
    #: Proposer of each operator. That of TUNE is asked in this thread, the others concurrently.
    proposers: Mapping[Operator, Proposer]
    #: Starting kernels of each island.
    starts: Sequence[Sequence[StartingKernel]]

    @property
    def _in_order(self) -> list[Operator]:
        """Operators whose proposer is asked in this thread, in order: so each child knows the ones before it."""
        return [one for one in self.proposers if self.proposers[one] is self.proposers.get(Operator.TUNE)]

    def create(self, generation: int, *, closed: int, recorded: bool) -> list[Offspring]:
        """Ask for the children of all islands.

        Args:
            generation: the new generation.
            closed: the newest closed one; -1 for none.
            recorded: whether an earlier session may have left attempts of it. These are not asked for again.
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
        create = self._create_starts if generation == 0 else self._create_child
        islands = range(self.context.settings.search.islands)
        return [child for island in islands for child in create(snapshot, island, known.get(island, {}))]

    def _create_starts(
        self, snapshot: GenerationSnapshot, island: int, recorded: Mapping[int, Birth]
    ) -> list[Offspring]:
        """The starting kernels of an island, each a child of its own."""
        children = []
        for slot, start in enumerate(self.starts[island]):
            child = Offspring(snapshot=snapshot, island=island)
            children.append(child)
            if slot in recorded:
                self.offspring.adopt(child, recorded[slot])
            else:
                proposal = Proposal(state=BirthState.CREATED, kernel=start.kernel, note=start.note)
                self.offspring.add(child, slot, proposal, Operator.SEED)
        return children

    def _create_child(
        self, snapshot: GenerationSnapshot, island: int, recorded: Mapping[int, Birth]
    ) -> list[Offspring]:
        child = Offspring(snapshot=snapshot, island=island, recorded=recorded)
        if 0 in recorded:
            self.offspring.adopt(child, recorded[0])
            return [child]
        generation, earlier = snapshot.generation, self.offspring.known_to(child)
        view, in_order = self.context.view, self._in_order

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
        return [child]
