"""One episode: a searcher on a landscape at a budget of evaluations, under the same conditions for all searchers.

A draft that was judged before costs nothing the second time, and a child that fails in a repairable way gets one repair
turn, which is an evaluation of its own. Both are worth as much as the choice of parents (docs/landscapes.md), so every
searcher has them.
"""

from dataclasses import dataclass, replace
from random import Random

from kbevolve.evolve.simulation.landscape import Landscape, Program
from kbevolve.evolve.simulation.searcher import Observation, SearcherFactory, Setup
from kbevolve.evolve.simulation.simulated_llm import Draft, SimulatedLLM, Task, judge

#: Known drafts in a row after which a search is over.
_EXHAUSTED = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeResult:
    """What an episode delivered."""

    #: Log speedup that the searcher publishes, the true one of that program, and the largest of the landscape.
    claimed: float
    delivered: float
    optimum: float
    #: Evaluations, drafts that were known, and valid ones among the evaluations.
    spent: int
    duplicates: int
    valid: int


def run_episode(
    landscape: Landscape, searcher: SearcherFactory, *, llm: SimulatedLLM, budget: int, seed: int
) -> EpisodeResult:
    """Search until the budget is spent.

    Args:
        landscape: where.
        searcher: makes the searcher.
        llm: writes the children.
        budget: evaluations, those of the starting programs and of the searcher's last look among them.
        seed: names all random choices; episodes of different searchers with one seed are pairs.
    """
    return _Episode(landscape, searcher, llm, budget, seed).run()


class _Episode:
    def __init__(
        self, landscape: Landscape, searcher: SearcherFactory, llm: SimulatedLLM, budget: int, seed: int
    ) -> None:
        self._landscape, self._llm, self._budget = landscape, llm, budget
        self._writing, self._noise = Random(f"{seed}/writing"), Random(f"{seed}/noise")
        self._known: dict[Draft, Observation] = {}
        self._spent = self._duplicates = self._valid = 0
        self._searcher = searcher(Setup(landscape=landscape, llm=llm, budget=budget, again=self._again, seed=seed))

    def run(self) -> EpisodeResult:
        for program in self._landscape.start():
            self._searcher.observe(self._evaluate(Draft(program=program), None))
        in_a_row = 0
        while self._spent < self._budget - self._searcher.reserve() and in_a_row < _EXHAUSTED:
            task = self._searcher.task(self._spent)
            draft = self._llm.write(self._landscape, task, self._writing)
            in_a_row = in_a_row + 1 if draft in self._known else 0
            self._child(draft, task)
        program, claimed = self._searcher.publish()
        true = self._landscape.true_value(program)
        assert true is not None, "a searcher publishes what the judge accepted"
        return EpisodeResult(
            claimed=claimed,
            delivered=true,
            optimum=self._landscape.optimum,
            spent=self._spent,
            duplicates=self._duplicates,
            valid=self._valid,
        )

    def _child(self, draft: Draft, task: Task) -> None:
        """Show the searcher what became of a child and, when it fails and a repair changes it, of the repair."""
        new = draft not in self._known
        found = self._evaluate(draft, task)
        self._searcher.observe(found)
        if new and found.failure is not None and self._spent < self._budget - self._searcher.reserve():
            repaired = self._llm.repair(self._landscape, draft, found.failure, self._writing)
            if repaired != draft:
                self._searcher.observe(self._evaluate(repaired, task))

    def _evaluate(self, draft: Draft, task: Task | None) -> Observation:
        if draft in self._known:
            self._duplicates += 1
            return replace(self._known[draft], task=task, duplicate=True)
        self._spent += 1
        found = Observation.of(draft.program, judge(self._landscape, draft, self._noise), task)
        self._valid += found.failure is None
        self._known[draft] = found
        return found

    def _again(self, program: Program) -> Observation | None:
        if self._spent >= self._budget:
            return None
        self._spent += 1
        return Observation.of(program, self._landscape.measure(program, self._noise))
