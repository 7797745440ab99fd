"""Who holds the title, from nothing but the confirmations."""

from typing import Any

from kbevolve.archive.champion import champion_of
from kbevolve.archive.records import Comparison, Confirmation
from tests.small_archive import confirmation


def made(kernel: str, rival: str | None = None, **changes: Any) -> Confirmation:
    return confirmation("run", kernel, rival=rival, **changes)


def holder(*confirmations: Confirmation, failed: tuple[str, ...] = ()) -> str | None:
    champion = champion_of(confirmations, failed)
    return champion.kernel if champion else None


def test_there_is_no_champion_at_first() -> None:
    assert holder() is None
    assert holder(made("a", comparison=Comparison.TIE)) is None, "no faster than eager"


def test_only_a_faster_challenger_takes_it() -> None:
    first = made("a")
    for comparison in (Comparison.TIE, Comparison.SLOWER):
        assert holder(first, made("b", "a", comparison=comparison, speedup=9.0)) == "a"
    assert holder(first, made("b", "a"), made("c", "b", comparison=Comparison.TIE)) == "b"


def test_a_kernel_that_failed_hands_it_back() -> None:
    facts = (made("a"), made("b", "a"))
    assert holder(*facts, failed=("b",)) == "a"
    assert holder(*facts, failed=("a", "b")) is None


def final(kernel: str, rival: str | None = "a", **changes: Any) -> Confirmation:
    return made(kernel, rival, purpose="final", **changes)


def test_a_final_is_defended_in_a_tie_and_its_number_is_the_newest() -> None:
    defender = final("a", None, speedup=1.9)
    facts = (
        made("a"),
        final("b", comparison=Comparison.TIE, speedup=2.5),
        defender,
        final("c", comparison=Comparison.SLOWER),
    )
    assert champion_of(facts) == defender


def test_the_fastest_of_those_beyond_the_tie_wins_a_final() -> None:
    facts = (made("a"), final("a", None), final("b", ratio_low=1.02), final("c", ratio_low=1.05), final("d"))
    assert holder(*facts, final("e", comparison=Comparison.TIE, ratio_low=3.0)) == "d"
    assert holder(*facts, failed=("d",)) == "c"


def test_without_a_champion_the_final_goes_to_who_has_shown_the_most() -> None:
    facts = (final("a", None, speedup=0.8), final("b", None, speedup=0.9), final("c", None, speedup=0.7))
    assert holder(*facts) == "b"


def test_a_run_that_goes_on_challenges_the_winner_of_its_final() -> None:
    facts = (made("a"), final("a", None), final("b"))
    assert holder(*facts, made("c", "b", generation=5, comparison=Comparison.TIE)) == "b"
    assert holder(*facts, made("c", "b", generation=5)) == "c"
    assert holder(*facts, final("b", None, generation=9), final("c", "b", generation=9)) == "c"
