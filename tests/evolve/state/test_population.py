"""What a run keeps in mind, however long it is: bounded, and the same when it is replayed."""

from random import Random
from typing import Any

import pytest

from kbevolve.archive.parts import grouped
from kbevolve.archive.records import Birth, BirthState, Evaluation, Kernel, Operator, Run, Verdict
from kbevolve.archive.store import Archive
from kbevolve.evolve.state import leaderboard
from kbevolve.evolve.state.leaderboard import Leaderboard
from kbevolve.evolve.state.memory import IDEAS
from kbevolve.evolve.state.population import LEARNT_FAILURES, SHOWN_FAILURES, Population
from tests.evolve.doubles import DEVICE, open_run, problem, settings


class Story:
    """Attempts written to an archive and observed by a population."""

    def __init__(self, islands: int = 1) -> None:
        self.archive = Archive(":memory:")
        self.run: Run = open_run(self.archive, settings())
        self.population = Population(islands, self.archive.run_view(self.run))
        self.number = 0

    def create(self, speedup: float | None, *, generation: int = 1, text: str = "", **facts: Any) -> Kernel:
        """A child of its own; without a speedup it is wrong."""
        kernel = Kernel.from_source(text or f"class ModelNew: number = {self.number}\n")
        idea = facts.pop("idea", None)
        birth = Birth(
            run=self.run.id, generation=generation, island=0, slot=facts.pop("slot", self.number),
            kernel=kernel.id, idea=idea.id if idea else None, note=f"number {self.number}",
            **{"operator": Operator.MUTATE, "state": BirthState.CREATED} | facts,
        )  # fmt: skip
        self.number += 1
        evaluation = grouped(Evaluation,
            kernel=kernel.id, problem=problem().id, device=DEVICE, precision="fp32",
            verdict=Verdict.WRONG if speedup is None else Verdict.CORRECT, message="wrong", speedup=speedup,
            speedup_low=speedup,
        )  # fmt: skip
        self.archive.add_birth(birth, kernel=kernel, idea=idea)
        self.archive.add_evaluation(evaluation)
        self.population.observe(birth, evaluation)
        if speedup is not None:
            self.population.enter(0, kernel.id)
        return kernel


def test_the_history_keeps_the_fittest_and_the_newest_in_the_order_of_birth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaderboard, "FITTEST", 5)
    monkeypatch.setattr(leaderboard, "NEWEST", 3)
    board, rng = Leaderboard(), Random(3)
    fitness = [rng.random() for _ in range(100)]
    for number, value in enumerate(fitness):
        board.add(f"k{number}", value)
    fittest = sorted(range(100), key=lambda number: -fitness[number])[:5]
    assert list(board.ranked()) == [f"k{number}" for number in fittest]
    assert board.in_order() == [f"k{number}" for number in sorted({*fittest, 97, 98, 99})]
    assert len(board) == 100


def test_of_equals_the_earlier_one_is_the_best() -> None:
    story = Story()
    first, second = story.create(2.0), story.create(2.0)
    assert story.population.best().kernel == first
    story.population.withdraw([first.id])
    assert story.population.best().kernel == second
    assert [member.kernel for member in story.population.ranked()] == [second]
    assert story.population.best(apart_from=second.id).kernel == second, "there is no other"


def test_counts_take_each_kernel_once_and_each_birth() -> None:
    story = Story()
    story.create(2.0, prompt_tokens=3)
    story.create(None)
    story.create(None, text="class ModelNew: number = 1\n", generation=2)  # two attempts in flight created one kernel
    story.create(2.0, text="class ModelNew: number = 0\n", generation=3, state=BirthState.DUPLICATE, prompt_tokens=4)
    population = story.population
    assert (population.totals.verdicts[Verdict.CORRECT], population.totals.verdicts[Verdict.WRONG]) == (1, 1)
    assert (population.totals.states[BirthState.CREATED], population.totals.states[BirthState.DUPLICATE]) == (3, 1)
    assert population.totals.prompt_tokens == 7
    assert len(population.history()) == 1
    assert population.note_of(Kernel.from_source("class ModelNew: number = 0\n").id) == "number 0"


def test_failures_are_the_newest_of_their_island_each_kernel_once() -> None:
    story = Story()
    failed = [story.create(None) for _ in range(SHOWN_FAILURES + 3)]
    shown = story.population.failures(0)
    assert [failure.kernel for failure in shown] == failed[: -SHOWN_FAILURES - 1 : -1]
    assert {failure.evaluation.message for failure in shown} == {"wrong"}
    assert story.population.failures(1) == ()


def test_numbers_are_learnt_from_the_newest_failures_of_all_islands() -> None:
    story = Story(islands=2)
    failed = [story.create(None) for _ in range(LEARNT_FAILURES)]
    assert story.population.failed() == tuple(failed)
    story.create(2.0)
    assert story.population.failed() == tuple(failed)
    assert story.population.failed()[-1] is story.population.failed()[-1], "each is read once"
    failed.append(story.create(None))
    assert story.population.failed() == tuple(failed[1:])


def test_children_are_counted_while_their_parent_lives_on_an_island() -> None:
    story = Story()
    parent = story.create(2.0, generation=0)
    story.create(None, parents=(parent.id,))
    story.create(None, parents=("gone", parent.id))
    story.population.end_generation()
    (member,) = story.population.island(0).members
    assert member.children == 1
    assert "gone" not in story.population._children


def test_a_champion_is_new_in_the_generation_that_created_it() -> None:
    story, new = Story(islands=2), []
    for generation, speedup in enumerate((1.0, 2.0, 1.5, 2.0, 3.0)):
        story.create(speedup, generation=generation)
        story.population.end_generation()
        champion = story.population.new_champion
        new.append(champion and champion.fitness)
    assert new == [None, 2.0, None, None, 3.0], "the best of the starting kernels is no news, nor is an equal"
    story.population.withdraw([story.population.new_champion.kernel.id])
    story.population.end_generation()
    assert story.population.new_champion is None


@pytest.mark.slow
def test_nothing_that_is_kept_grows_with_the_run() -> None:
    story, rng = Story(), Random(1)
    for generation in range(1, 1200):
        parents = (story.create(rng.random(), generation=generation).id,)
        story.create(None, generation=generation, parents=parents)
        story.population.end_generation()
    population = story.population
    kept = {name: value for name, value in vars(population).items() if name not in ("_history", "_leaderboard")}
    sizes = {name: len(value) for name, value in kept.items() if hasattr(value, "__len__")}
    assert max(sizes.values()) <= IDEAS, sizes
    assert len(population.history()) <= leaderboard.FITTEST + leaderboard.NEWEST
    assert len(population._leaderboard._fittest) == leaderboard.FITTEST
