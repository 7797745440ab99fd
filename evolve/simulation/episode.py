"""One trial: a law on a landscape at a budget of evaluations, with the same hygiene whichever law it is.

Hygiene is what has nothing to do with the law and everything with the result: a draft that was judged before costs
nothing the second time, and a child that fails in a way that can be mended gets one repair turn, which is an evaluation
of its own. SEARCH section 0 found that these are worth as much as the law; so all laws get them.
"""

from dataclasses import dataclass
from random import Random

from kbevolve.evolve.simulation.landscape import Landscape, Program
from kbevolve.evolve.simulation.searcher import Observation, SearcherFactory, Setup
from kbevolve.evolve.simulation.simulated_llm import Draft, SimulatedLLM, Task, judge

#: Drafts in a row that are all known, after which a search has nothing more to say.
_EXHAUSTED = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeResult:
    """What a trial came to."""

    #: Log speedup that the law publishes, the true one of that program, and the largest of the landscape.
    claimed: float
    delivered: float
    optimum: float
    #: Evaluations, drafts that were known, and valid ones among the evaluations.
    spent: int
    duplicates: int
    valid: int


def run_episode(
    landscape: Landscape, law: SearcherFactory, *, llm: SimulatedLLM, budget: int, seed: int
) -> EpisodeResult:
    """Search until the budget is spent.

    Args:
        landscape: where.
        law: makes the law.
        llm: writes the children.
        budget: evaluations, those of the starting programs and of the law's last look among them.
        seed: names all random choices; trials of different laws with one seed are pairs.
    """
    return _Episode(landscape, law, llm, budget, seed).run()


class _Episode:
    def __init__(
        self, landscape: Landscape, law: SearcherFactory, llm: SimulatedLLM, budget: int, seed: int
    ) -> None:
        self._landscape, self._llm, self._budget = landscape, llm, budget
        self._writing, self._noise = Random(f"{seed}/writing"), Random(f"{seed}/noise")
        self._known: dict[Draft, Observation] = {}
        self._spent = self._duplicates = self._valid = 0
        self._law = law(
            Setup(landscape=landscape, llm=llm, budget=budget, again=self._again, seed=seed),
        )

    def run(self) -> EpisodeResult:
        for program in self._landscape.start():
            self._law.observe(self._evaluate(Draft(program=program), None))
        in_a_row = 0
        while self._spent < self._budget - self._law.reserve() and in_a_row < _EXHAUSTED:
            task = self._law.task(self._spent)
            draft = self._llm.write(self._landscape, task, self._writing)
            known = self._known.get(draft)
            in_a_row = in_a_row + 1 if known else 0
            self._law.observe(self._known_before(known, task) if known else self._born(draft, task))
        claim = self._law.publish()
        true = self._landscape.true_value(claim.program)
        assert true is not None, "a law publishes what the judge accepted"
        return EpisodeResult(
            claimed=claim.score,
            delivered=true,
            optimum=self._landscape.optimum,
            spent=self._spent,
            duplicates=self._duplicates,
            valid=self._valid,
        )

    def _born(self, draft: Draft, task: Task) -> Observation:
        """What becomes of a child; of its repair, when it fails and is mended."""
        found = self._evaluate(draft, task)
        if found.failure is None or self._spent >= self._budget - self._law.reserve():
            return found
        mended = self._llm.mend(self._landscape, draft, found.failure, self._writing)
        if mended == draft:
            return found
        self._law.observe(found)
        known = self._known.get(mended)
        return self._known_before(known, task) if known else self._evaluate(mended, task)

    def _evaluate(self, draft: Draft, task: Task | None) -> Observation:
        self._spent += 1
        found = Observation.of(draft.program, judge(self._landscape, draft, self._noise), task)
        self._valid += found.failure is None
        self._known[draft] = found
        return found

    def _known_before(self, known: Observation, task: Task) -> Observation:
        self._duplicates += 1
        return Observation(
            task=task,
            program=known.program,
            score=known.score,
            margin=known.margin,
            failure=known.failure,
            duplicate=True,
        )

    def _again(self, program: Program) -> Observation | None:
        if self._spent >= self._budget:
            return None
        self._spent += 1
        return Observation.of(program, self._landscape.measure(program, self._noise))
