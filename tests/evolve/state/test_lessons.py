import math

from kbevolve.evolve.state.lessons import MOST, Evidence, Lesson, Pair, distil, still_valid

PAIR: Pair = ("block-tiling", "memory")


def children(*gains: float | None, start: int = 1) -> list[Evidence]:
    """Children with these gains, as factors."""
    return [
        Evidence(
            number=number, kernel=f"k{number}", gain=None if gain is None else math.log(gain),
            signature="" if gain else "wrong: off by #",
        )
        for number, gain in enumerate(gains, start=start)
    ]  # fmt: skip


def lesson(*gains: float | None) -> Lesson | None:
    drawn = distil({PAIR: children(*gains)})
    return drawn[0] if drawn else None


def test_what_pays_is_said_with_its_evidence() -> None:
    found = lesson(1.1, None, 1.3, 1.0)
    assert found is not None
    assert found.line == (
        "block-tiling against memory pays: 2 of 4 children faster than their parents, the best +30 % [k3, k1]"
    )


def test_what_does_not_pay_and_what_does_not_work_are_distinguished() -> None:
    slow, broken = lesson(0.9, 0.8, None), lesson(None, None, None)
    assert slow is not None
    assert broken is not None
    assert "has not paid: 3 children, 2 correct, the best -10 % [k1, k2]" in slow.line
    assert "has not worked: 3 children, none correct, mostly wrong: off by # [k1, k2, k3]" in broken.line


def test_a_little_evidence_teaches_nothing() -> None:
    for gains in ((1.5,), (None, None), (0.9, 1.5, 0.8), ()):
        assert lesson(*gains) is None, gains


def test_a_lesson_that_newer_children_contradict_is_dropped() -> None:
    good, bad = distil({PAIR: children(1.1, 1.2)}), distil({PAIR: children(None, None, None)})
    for lessons, newer, stands in (
        (good, (), True), (good, (None,), True), (good, (None, 0.9), False), (good, (None, 1.2), True),
        (bad, (None, 0.9), True), (bad, (1.3,), False),
    ):  # fmt: skip
        now = {PAIR: [*children(1.1, 1.2), *children(*newer, start=5)]}
        assert bool(still_valid(lessons, now)) == stands, (lessons, newer)


def test_there_are_few_those_with_most_evidence_first() -> None:
    evidence: dict[Pair, list[Evidence]] = {
        (f"t{number:02}", ""): children(*[1.2] * (2 + number % 3)) for number in range(30)
    }
    drawn = distil(evidence)
    assert len(drawn) == MOST
    assert all("4 of 4" in one.text for one in drawn)
    assert drawn[0].text.startswith("t02 pays")
