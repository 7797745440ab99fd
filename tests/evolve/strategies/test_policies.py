"""What each strategy chooses: parents, operator, and what the proposer may see."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from kbevolve.archive.parts import grouped
from kbevolve.archive.records import Backend, Birth, BirthState, Evaluation, Idea, Kernel, Operator, Verdict
from kbevolve.evolve.state.attempts import Attempt
from kbevolve.evolve.strategies.base import Choice, NextChild, Strategy
from kbevolve.evolve.strategies.baselines import BestOfN, Greedy, OpenEvolve
from kbevolve.evolve.strategies.refine import Refine
from kbevolve.evolve.strategies.tree import SEEDS, Tree
from kbevolve.islands.island import Member
from tests.evolve.doubles import DEVICE, kernel

WRITING = frozenset({Operator.MUTATE, Operator.REWRITE, Operator.CROSS, Operator.REPAIR, Operator.TUNE})
OFFLINE = frozenset({Operator.TUNE, Operator.CROSS})
UNROLL, TILES = (Idea(title=title, mechanism="", technique="tiling") for title in ("Unroll", "Tiles"))


def evaluation(one: Kernel, speedup: float | None) -> Evaluation:
    facts: dict[str, Any] = {"kernel": one.id, "problem": "p", "device": DEVICE, "precision": "fp32"}
    if speedup is None:
        return grouped(Evaluation, **facts, verdict=Verdict.WRONG, message="wrong by 3")
    return grouped(
        Evaluation, **facts, verdict=Verdict.CORRECT, speedup=speedup, speedup_low=speedup, speedup_high=speedup
    )


def member(speedup: float, **values: int) -> Member:
    one = kernel(**values)
    return Member(kernel=one, evaluation=evaluation(one, speedup), niche="n")


def attempt(
    speedup: float | None, *, generation: int = 1, idea: Idea | None = None, parent: Member | None = None, **values: int
) -> Attempt:
    one = kernel(**values)
    birth = Birth(
        run="r",
        generation=generation,
        island=0,
        slot=0,
        operator=Operator.REWRITE,
        state=BirthState.CREATED,
        kernel=one.id,
        parents=(parent.kernel.id,) if parent else (),
    )
    return Attempt(birth=birth, kernel=one, evaluation=evaluation(one, speedup), idea=idea)


class Known:
    """Stands for `Knowledge`."""

    def __init__(
        self, *, starts: Sequence[Member], better: Sequence[Member] = (), bred: Sequence[Attempt] = ()
    ) -> None:
        self.starts = tuple(starts)
        self._better = tuple(better)
        self._bred = bred
        self.asked: list[int] = []

    def ranked(self) -> tuple[Member, ...]:
        return (*self._better, *self.starts)

    def fittest(self, count: int, *, generation: int) -> tuple[Member, ...]:
        self.asked.append(generation)
        return self.ranked()[:count]

    def last(self) -> Attempt | None:
        return self._bred[-1] if self._bred else None

    def attempts(self, generation: int, island: int | None = None) -> tuple[Attempt, ...]:
        return tuple(one for one in self._bred if one.birth.generation == generation)


def turn(generation: int = 1, *, operators: frozenset[Operator] = WRITING, **more: int) -> NextChild:
    return NextChild(generation=generation, operators=operators, **{"island": 0, "islands": 1, **more})


def choices(strategy: Strategy, known: Any, at: NextChild, draws: int = 60) -> list[Choice]:
    made = [strategy.choose(known, at, Random(seed)) for seed in range(draws)]
    assert all(made)
    return [one for one in made if one]


SLOW, FAST, BETTER = member(0.8), member(1.5, TILE=16), member(3.0, TILE=32)


def test_best_of_n_always_writes_the_best_start_anew_and_learns_nothing() -> None:
    known = Known(starts=[FAST, SLOW], better=[BETTER], bred=[attempt(3.0, TILE=32)])
    for one in choices(BestOfN(), known, turn(9)):
        assert (one.operator, one.parents) == (Operator.REWRITE, (FAST,))
        assert (one.learnt, one.failures, one.idea) == (False, (), None)


def test_best_of_n_offline_draws_among_all_starts_with_tunables() -> None:
    bare = Member(
        kernel=(one := Kernel.from_source("class ModelNew: ...\n")), evaluation=evaluation(one, 9.0), niche="n"
    )
    known = Known(starts=[bare, FAST, SLOW], better=[BETTER])
    made = choices(BestOfN(), known, turn(operators=OFFLINE))
    assert {one.parents[0].kernel.id for one in made} == {FAST.kernel.id, SLOW.kernel.id}
    assert {one.operator for one in made} == {Operator.TUNE}
    assert BestOfN().choose(Known(starts=[bare]), turn(operators=OFFLINE), Random(0)) is None  # type: ignore[arg-type]


def test_greedy_always_breeds_from_the_best() -> None:
    written = replace(BETTER, kernel=replace(BETTER.kernel, backend=Backend.CPP))
    known = Known(starts=[FAST, SLOW], better=[written])
    made = choices(Greedy(tune_share=0.2), known, turn(5))
    assert all(one.parents == (written,) for one in made)
    assert {one.operator for one in made} == {Operator.MUTATE, Operator.REWRITE, Operator.TUNE}
    known = Known(starts=[FAST, SLOW], better=[BETTER])
    made = choices(Greedy(tune_share=0.2), known, turn(5))
    assert Operator.MUTATE not in {one.operator for one in made}, "a kernel of torch's operations has nothing to edit"
    offline = choices(Greedy(tune_share=0.2), known, turn(5, operators=OFFLINE))
    assert all((one.operator, one.parents) == (Operator.TUNE, (BETTER,)) for one in offline)


def test_refine_goes_on_from_its_last_child_even_when_another_is_faster() -> None:
    last = attempt(0.9, UNROLL=2)
    (made,) = choices(Refine(feedback=("generation", "execution")), Known(starts=[FAST], bred=[last]), turn(2), draws=1)
    assert made.operator is Operator.MUTATE
    assert made.parents[0].kernel == last.kernel
    assert made.feedback == {"generation", "execution"}


def test_refine_mends_its_last_child_when_that_is_wrong() -> None:
    last = attempt(None, WRONG=1, parent=FAST)
    known = Known(starts=[FAST, SLOW], bred=[attempt(0.9), last])
    (made,) = choices(Refine(feedback=("generation", "execution", "profiler")), known, turn(3), draws=1)
    assert (made.operator, made.repair) == (Operator.REPAIR, last.failure)
    assert made.parents == (FAST,)


def test_refine_without_execution_does_not_let_on_that_its_last_child_is_wrong() -> None:
    last = attempt(None, WRONG=1)
    (made,) = choices(Refine(feedback=("generation",)), Known(starts=[FAST], bred=[last]), turn(2), draws=1)
    assert (made.operator, made.repair, made.failures) == (Operator.MUTATE, None, ())
    assert made.parents[0].kernel == last.kernel
    assert "execution" not in made.feedback


@pytest.mark.parametrize(("feedback", "failures"), [(("execution",), 1), ((), 0)])
def test_refine_without_the_generation_starts_again(feedback: tuple[Any, ...], failures: int) -> None:
    known = Known(starts=[FAST], bred=[attempt(None, WRONG=1)])
    (made,) = choices(Refine(feedback=feedback), known, turn(2), draws=1)
    assert (made.operator, made.parents, len(made.failures)) == (Operator.REWRITE, (FAST,), failures)


def test_the_first_child_of_refine_is_a_rewrite_of_the_start() -> None:
    (made,) = choices(Refine(feedback=("generation",)), Known(starts=[FAST, SLOW]), turn(), draws=1)
    assert (made.operator, made.parents) == (Operator.REWRITE, (FAST,))


def test_a_round_of_the_tree_first_has_ideas_then_carries_each_out_again() -> None:
    tree = Tree(ideas=2, implementations=2)
    bred = [attempt(1.6, generation=1, idea=UNROLL, UNROLL=2), attempt(None, generation=2, idea=TILES, WRONG=1)]
    known = Known(starts=[FAST, SLOW], bred=bred)
    first, second, third, fourth = (choices(tree, known, turn(generation), draws=1)[0] for generation in (1, 2, 3, 4))
    assert (first.idea, second.idea) == (None, None)
    assert (third.idea, fourth.idea) == (UNROLL, TILES)
    assert (third.failures, fourth.failures) == ((), (bred[1].failure,))
    assert [one.parents for one in (first, second, third, fourth)] == [(FAST,), (SLOW,), (FAST,), (SLOW,)]
    assert known.asked == [0, 0, 0, 0], "a round begins from what its first child knew"


def test_the_best_so_far_seed_the_next_round_of_the_tree() -> None:
    known = Known(starts=[FAST, SLOW], better=[BETTER])
    tree = Tree(ideas=2, implementations=2)
    assert choices(tree, known, turn(5), draws=1)[0].parents == (BETTER,)
    assert set(known.asked) == {4}
    assert choices(tree, known, turn(6), draws=1)[0].parents == (FAST,)
    assert SEEDS == 2
    assert choices(tree, known, turn(5), draws=1)[0].idea is None


def test_children_of_several_islands_are_numbered_one_by_one() -> None:
    assert turn(3, island=1, islands=4, lookahead=1).number == 9


def test_openevolve_begins_with_the_best_start() -> None:
    (made,) = choices(OpenEvolve(), Known(starts=[FAST, SLOW], better=[BETTER]), turn(4), draws=1)
    assert made.parents == (FAST,)


@pytest.mark.parametrize(
    "strategy", [BestOfN(), Greedy(tune_share=0), Refine(feedback=()), Tree(ideas=2, implementations=1), OpenEvolve()]
)
def test_without_a_correct_kernel_nothing_is_chosen(strategy: Strategy) -> None:
    assert strategy.choose(Known(starts=[]), turn(), Random(0)) is None  # type: ignore[arg-type]
