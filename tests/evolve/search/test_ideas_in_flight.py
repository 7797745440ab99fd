"""Children choose their ideas in the order of their places, in whatever order models answer."""

import time
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from kbevolve.archive.records import Idea
from kbevolve.configs.errors import ProposerError, Unanswered
from kbevolve.evolve.search.ideas_in_flight import IdeasInFlight, Place


def idea(title: str) -> Idea:
    return Idea(title=title, mechanism="m", technique="other")


def first_free(taken: tuple[Idea, ...]) -> Idea:
    """The first letter that no other child has."""
    return next(idea(letter) for letter in "abcdefgh" if idea(letter) not in taken)


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_places_decides_not_that_of_answers(seed: int) -> None:
    ideas, places = IdeasInFlight(), [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1)]
    for place in places:
        ideas.expect(place, None)
    waits = {place: Random(f"{seed}/{place}").uniform(0, 0.05) for place in places}

    def child(place: Place) -> str:
        with ideas.being_written(place):
            time.sleep(waits[place])
            return ideas.choose(place, first_free, closed=0).title

    with ThreadPoolExecutor(len(places)) as threads:
        assert list(threads.map(child, places)) == list("abcde")


def test_a_child_that_chooses_nothing_holds_up_no_other() -> None:
    ideas = IdeasInFlight()
    ideas.expect((1, 0), None)
    ideas.expect((1, 1), None)
    with ideas.being_written((1, 0)):
        pass
    assert ideas.choose((1, 1), first_free, closed=0).title == "a"


def test_ideas_whose_results_a_child_knows_are_not_in_flight() -> None:
    ideas = IdeasInFlight()
    ideas.expect((1, 0), idea("a"))
    ideas.expect((2, 0), idea("b"))
    ideas.expect((3, 0), None)
    assert ideas.choose((3, 0), lambda taken: taken[0], closed=1).title == "b"


def test_a_child_behind_an_open_question_is_unanswered_too() -> None:
    ideas = IdeasInFlight()
    ideas.expect((1, 0), None)
    ideas.expect((1, 1), None)
    with pytest.raises(ProposerError), ideas.being_written((1, 0)):
        raise ProposerError("no endpoint")
    with pytest.raises(Unanswered, match="g1/i0"):
        ideas.choose((1, 1), first_free, closed=0)


def test_what_is_forgotten_is_free_again() -> None:
    ideas = IdeasInFlight()
    ideas.expect((1, 0), idea("a"))
    ideas.forget(1)
    ideas.expect((2, 0), None)
    assert ideas.choose((2, 0), first_free, closed=0).title == "a"
