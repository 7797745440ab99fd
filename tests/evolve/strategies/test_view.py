"""What a strategy may look at: first evaluations of closed generations, and nothing of its own time."""

from collections.abc import Iterator

import pytest

from kbevolve.archive.records import BirthState, Kernel, Operator, Verdict
from kbevolve.archive.store import Archive
from kbevolve.evolve.proposers.base import Brief, Proposal
from kbevolve.evolve.proposers.factory import WRITING, build_proposers
from kbevolve.evolve.search.search import Search
from kbevolve.evolve.strategies.base import StrategyView
from tests.evolve.doubles import KnownEvaluator, ScriptedProposer, kernel, open_run, search
from tests.evolve.strategies.conftest import settings_of


@pytest.fixture
def over() -> Iterator[Search]:
    """A search by best-of-n that has bred four generations on two islands, with wrong children and repairs."""
    settings = settings_of("best-of-n", generations=4)
    with Archive(":memory:") as archive:
        run = open_run(archive, settings)

        def answer(brief: Brief) -> Proposal:
            number = brief.rng.randrange(10**6)
            text = f"class ModelNew: repaired = {number}\n"
            if brief.operator is not Operator.REPAIR:
                text = f"class ModelNew: broken = {number}\n"
            return Proposal(
                state=BirthState.CREATED, kernel=Kernel.from_source(text), prompt=f"prompt {number}", reply=text
            )

        proposers = {**build_proposers(settings), **dict.fromkeys(WRITING, ScriptedProposer(answer))}
        starts = [kernel(), kernel(TILE=32, PACK=1), kernel(WRONG=1)]
        searching = search(archive, run, settings, KnownEvaluator(), proposers=proposers, starts=starts)
        searching.run()
        yield searching


def knowledge(searching: Search, *, island: int = 0, closed: int = 4) -> StrategyView:
    return StrategyView(population=searching.population, run=searching.context.view, island=island, closed=closed)


def test_starts_are_the_correct_ones_the_fittest_first(over: Search) -> None:
    assert [one.kernel for one in knowledge(over).starts] == [kernel(TILE=32, PACK=1), kernel()]


def test_ranked_are_the_kernels_of_all_islands_each_once(over: Search) -> None:
    ranked = knowledge(over).ranked()
    assert ranked[0].kernel == kernel(TILE=32, PACK=1)
    assert [one.fitness for one in ranked] == sorted((one.fitness for one in ranked), reverse=True)
    assert len({one.kernel.id for one in ranked}) == len(ranked)
    assert ranked[:2] == knowledge(over).fittest(2, generation=4)


def test_the_last_attempt_is_the_repair_of_the_newest_closed_child(over: Search) -> None:
    last = knowledge(over, island=1, closed=3).last()
    assert last is not None
    assert (last.birth.generation, last.birth.island, last.birth.slot) == (3, 1, 1)
    assert last.evaluation is not None
    assert last.evaluation.verdict is Verdict.CORRECT
    assert last.failure is None
    assert knowledge(over, closed=0).last() is None


def test_attempts_tell_right_from_wrong_and_nothing_of_what_is_open(over: Search) -> None:
    child, repair = knowledge(over).attempts(2)
    assert child.failure is not None
    assert child.failure.kernel == child.kernel
    assert repair.birth.parents[0] == child.birth.kernel
    assert child.birth.prompt == ""
    assert knowledge(over, closed=1).attempts(2) == ()
    assert [one.birth.island for one in knowledge(over).attempts(2, island=1)] == [1, 1]


def test_what_was_said_comes_with_all_attempts_since_a_generation(over: Search) -> None:
    since = knowledge(over).since(3)
    assert [(one.birth.generation, one.birth.slot) for one in since] == [(3, 0), (3, 1), (4, 0), (4, 1)]
    assert all(one.birth.prompt.startswith("prompt ") and "class ModelNew" in one.birth.reply for one in since)
