"""What a strategy may look at when it chooses a child.

Everything rests on first evaluations of generations that were closed by then. So a resumed run decides as the
undisturbed one did, whatever was measured again later.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from kbevolve.archive.records import Verdict
from kbevolve.archive.run_view import RunView
from kbevolve.evolve.state.attempts import Attempt
from kbevolve.evolve.state.population import Population
from kbevolve.islands.island import Member

#: Generations that are looked through for an island's newest attempt: after so many answers without code it is better
#: to begin anew than to ask the same again.
LOOK_BACK = 16


@dataclass(frozen=True, kw_only=True)
class StrategyView:
    """What one run knows, as one island sees it."""

    #: The kernels on its islands, and what the archive holds of it.
    population: Population
    ledger: RunView
    #: The island of the child, and the newest generation that is closed.
    island: int
    closed: int

    @cached_property
    def starts(self) -> tuple[Member, ...]:
        """The starting kernels that are correct, the fittest first."""
        found = {
            evaluation.kernel
            for _, evaluation in self.ledger.verdicts(0)
            if evaluation is not None and evaluation.verdict is Verdict.CORRECT
        }
        return _ranked(self.population.member(kernel) for kernel in found)

    def ranked(self) -> tuple[Member, ...]:
        """The fittest kernels of the run, the best first."""
        every = {member.kernel.id: member for island in self.population.islands for member in island.members}
        return _ranked(every.values())

    def fittest(self, count: int, *, generation: int) -> tuple[Member, ...]:
        """The fittest kernels up to and with a generation, the best first."""
        found = self.ledger.contenders(generation=generation, above=0.0, count=count)
        return tuple(map(self.population.member, found))

    def last(self) -> Attempt | None:
        """This island's newest attempt that was judged, right or wrong; None before its first child."""
        for generation in range(self.closed, max(0, self.closed - LOOK_BACK), -1):
            for attempt in reversed(self.attempts(generation)):
                if attempt.evaluation is not None:
                    return attempt
        return None

    def attempts(self, generation: int, island: int | None = None) -> tuple[Attempt, ...]:
        """What an island (this one) created in a generation, a child before its repairs; () while it is not closed.

        Without prompts and replies.
        """
        if generation > self.closed:
            return ()
        wanted = self.island if island is None else island
        return tuple(
            Attempt(
                birth=birth,
                kernel=self.ledger.kernel(birth.kernel) if birth.kernel else None,
                evaluation=evaluation,
                idea=self.ledger.idea(birth.idea) if birth.idea else None,
            )
            for birth, evaluation in self.ledger.verdicts(generation)
            if birth.island == wanted
        )

    def since(self, generation: int) -> list[Attempt]:
        """What this island created from a generation on, the oldest first, with prompts and replies."""
        found = []
        for attempt in (one for closed in range(generation, self.closed + 1) for one in self.attempts(closed)):
            prompt, reply = self.ledger.conversation(attempt.birth)
            found.append(replace(attempt, birth=replace(attempt.birth, prompt=prompt, reply=reply)))
        return found


def _ranked(members: Iterable[Member]) -> tuple[Member, ...]:
    return tuple(sorted(members, key=lambda member: (-member.fitness, member.kernel.id)))
