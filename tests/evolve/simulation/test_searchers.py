from dataclasses import replace

import pytest

from kbevolve.archive.records import Operator
from kbevolve.evolve.simulation.ladders import find_ladder
from kbevolve.evolve.simulation.landscape import Program
from kbevolve.evolve.simulation.searcher import EpisodeResult, Observation, Setup, run_episode
from kbevolve.evolve.simulation.searchers.baselines import BestOfNSearcher, GreedySearcher
from kbevolve.evolve.simulation.searchers.ours import FINALISTS, OurSearcher
from kbevolve.evolve.simulation.simulated_llm import SimulatedLLM, Task
from kbevolve.evolve.simulation.tournament import SEARCHERS

LADDER = find_ladder("ladder-a")


def tried(searcher: str, *, budget: int = 40, seed: int = 1) -> EpisodeResult:
    return run_episode(LADDER, SEARCHERS[searcher], llm=SimulatedLLM(), budget=budget, seed=seed)


@pytest.mark.parametrize("searcher", SEARCHERS)
def test_a_searcher_spends_its_budget_and_publishes_what_is_right(searcher: str) -> None:
    result = tried(searcher)
    assert 38 <= result.spent <= 40, "a repair at the end may not be begun"
    assert 0 < result.valid <= result.spent
    assert result.delivered <= result.optimum
    assert abs(result.claimed - result.delivered) < 0.1


@pytest.mark.parametrize("searcher", SEARCHERS)
def test_the_same_seed_gives_the_same_search(searcher: str) -> None:
    assert tried(searcher) == tried(searcher)
    assert tried(searcher) != tried(searcher, seed=2)


def test_more_evaluations_find_more() -> None:
    for searcher in ("ours", "greedy", "shinka"):
        few, many = (
            sum(tried(searcher, budget=budget, seed=seed).delivered for seed in range(3)) for budget in (20, 100)
        )
        assert many > few + 0.5


class Repeating:
    """Asks for crossings of a program with itself: every child is known."""

    def __init__(self, setup: Setup) -> None:
        self.seen: list[Observation] = []

    def task(self, spent: int) -> Task:
        return Task(operator=Operator.CROSS, parents=(self._program, self._program))

    @property
    def _program(self) -> Program:
        return self.seen[0].program

    def observe(self, found: Observation) -> None:
        self.seen.append(found)

    def reserve(self) -> int:
        return 0

    def publish(self) -> tuple[Program, float]:
        return self._program, 0.0


def test_what_is_known_costs_nothing_and_a_search_that_only_repeats_ends() -> None:
    llm = SimulatedLLM(slips={})
    result = run_episode(LADDER, Repeating, llm=llm, budget=50, seed=0)
    assert result.spent == len(LADDER.start())
    assert result.duplicates == 200


def test_best_of_n_never_leaves_the_start_and_greedy_follows_the_best() -> None:
    parents: dict[str, set[Program]] = {"iid": set(), "greedy": set()}
    for name, searcher in (("iid", BestOfNSearcher), ("greedy", GreedySearcher)):

        class Watched(searcher):  # type: ignore[valid-type,misc]
            def task(self, spent: int) -> Task:
                found: Task = super().task(spent)
                parents[name].add(found.parents[0])  # noqa: B023
                return found

        run_episode(LADDER, Watched, llm=SimulatedLLM(), budget=60, seed=3)
    assert len(parents["iid"]) == 1
    assert parents["iid"] <= set(LADDER.start())
    assert len(parents["greedy"]) > 5


def test_ours_keeps_a_part_of_the_budget_for_a_last_look() -> None:
    looks: list[Program] = []

    class Watched(OurSearcher):
        def publish(self) -> tuple[Program, float]:
            again = self._setup.again

            def counted(program: Program) -> Observation | None:
                looks.append(program)
                return again(program)

            self._setup = replace(self._setup, again=counted)
            return super().publish()

    result = run_episode(LADDER, Watched, llm=SimulatedLLM(), budget=100, seed=4)
    assert len(looks) == FINALISTS == 5
    assert result.spent <= 100


def test_a_claim_without_a_last_look_is_the_lower_end() -> None:
    result = tried("ours", budget=12)
    assert result.claimed < result.delivered + 0.02
