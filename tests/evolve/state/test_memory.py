"""What births teach a run: outcomes, credit, exhausted ideas, lessons, stagnation. Bounded."""

import math
from dataclasses import replace
from typing import Any

import pytest

from kbevolve.archive.parts import grouped
from kbevolve.archive.records import Birth, BirthState, Evaluation, Idea, Operator, Verdict
from kbevolve.evolve.state import memory as memory_module
from kbevolve.evolve.state.knowledge import Gain
from kbevolve.evolve.state.lessons import EVERY, REMEMBERED
from kbevolve.evolve.state.memory import IDEAS, SHOWN_EXHAUSTED, SIGNATURES, Memory
from kbevolve.islands.credit.posterior import Tally
from kbevolve.islands.credit.techniques import Experience


def evaluation(speedup: float | None, message: str = "off by 3", *, width: float = 0.01) -> Evaluation:
    facts: dict[str, Any] = {"kernel": "k", "problem": "p", "device": "d", "precision": "fp32"}
    if speedup is None:
        return grouped(Evaluation, **facts, verdict=Verdict.WRONG, message=message)
    return grouped(Evaluation,
        **facts, verdict=Verdict.CORRECT, speedup=speedup, speedup_low=speedup * (1 - width),
        speedup_high=speedup * (1 + width),
    )  # fmt: skip


PARENT = evaluation(2.0)


def idea(title: str = "Larger tiles", technique: str = "block-tiling", bottleneck: str = "bandwidth") -> Idea:
    return Idea(title=title, mechanism="m", technique=technique, bottleneck=bottleneck)


class Taught:
    """Observes attempts that number themselves."""

    def __init__(self) -> None:
        self.number, self.memory = 0, Memory()

    def create(
        self, speedup: float | None, *, of: Idea | None = None, message: str = "off by 3", **facts: Any
    ) -> Memory:
        self.number += 1
        created = Birth(
            run="r", generation=self.number, island=facts.pop("island", 0), slot=facts.pop("slot", 0),
            operator=facts.pop("operator", Operator.MUTATE), state=facts.pop("state", BirthState.CREATED),
            parents=("p",), kernel=f"k{self.number}", **facts,
        )  # fmt: skip
        found = evaluation(speedup, message) if created.state is not BirthState.NO_CODE else None
        self.memory = self.memory.after(created, of, found, PARENT)
        return self.memory


def test_a_gain_is_over_the_parent_and_has_an_interval() -> None:
    memory = Taught().create(2.6, of=idea())
    outcome = memory.outcome("larger  TILES")
    assert outcome is not None
    assert outcome.gain is not None
    assert outcome.gain.factor == pytest.approx(1.3)
    assert outcome.gain.low == pytest.approx(1.3 * 0.99 / 1.01)
    assert outcome.gain.high == pytest.approx(1.3 * 1.01 / 0.99)
    assert (outcome.children, outcome.births, outcome.worked, outcome.exhausted) == (1, 1, 1, "")
    assert not outcome.open, "it worked: it need not be carried out again"


def test_a_gain_is_believed_as_far_as_it_was_measured() -> None:
    quiet, noisy, wild = (
        Gain.of(evaluation(2.6, width=width), evaluation(2.0, width=width)) for width in (0.002, 0.1, 0.99)
    )
    assert quiet is not None
    assert noisy is not None
    assert wild is not None
    assert quiet.log == pytest.approx(math.log(1.3), rel=0.001)
    assert 0.6 * quiet.log < noisy.log < 0.95 * quiet.log
    assert 0 < wild.log < 0.01


def test_two_failures_of_different_kinds_exhaust_an_idea() -> None:
    taught = Taught()
    memory = taught.create(None, of=idea(), message="off by 3")
    assert memory.outcomes["larger tiles"].open
    memory = taught.create(None, of=idea(), message="off by 7", slot=1, operator=Operator.REPAIR)
    assert list(memory.exhausted()) == [], "the same mistake twice says nothing of the idea"
    memory = taught.create(None, of=idea(), message="nan everywhere", slot=2, operator=Operator.REPAIR)
    (outcome,) = memory.exhausted()
    assert outcome.exhausted == "failed 3x: wrong: off by 7; wrong: nan everywhere"
    assert (outcome.children, outcome.births) == (1, 3)


def test_what_is_slower_beyond_doubt_is_exhausted() -> None:
    taught = Taught()
    taught.create(1.7, of=idea("slower"))
    memory = taught.create(1.99, of=idea("a tie"))
    (outcome,) = memory.exhausted()
    assert outcome.exhausted == "slower: 0.850 times its parent's speed, 0.833 to 0.867"
    assert outcome.idea.title == "slower"
    assert list(taught.create(2.5, of=idea("slower")).exhausted()) == [], "the best child counts"


def test_failures_are_counted_by_signature_over_all_islands() -> None:
    taught = Taught()
    for island in range(4):
        memory = taught.create(None, message=f"first wrong element at ({island}, 7)", island=island)
    assert memory.failures == {"wrong: first wrong element at (#, #)": 4}


def test_a_duplicate_teaches_that_nothing_came() -> None:
    fresh, repeated = Taught().create(2.6, of=idea()), Taught().create(2.6, of=idea(), state=BirthState.DUPLICATE)
    assert fresh.operators.belief("mutate").validity > repeated.operators.belief("mutate").validity
    assert repeated.outcomes["larger tiles"].worked == 0
    assert repeated.experience.tally("block-tiling").invalid == 1
    assert Taught().create(None, state=BirthState.NO_CODE).failures == {}


def test_a_repair_is_credited_to_how_the_child_was_made() -> None:
    taught = Taught()
    taught.create(None, operator=Operator.REWRITE)
    memory = taught.create(3.0, operator=Operator.REPAIR, slot=1)
    assert memory.operators.belief("rewrite").valid > 3
    assert "repair" not in memory.operators.tallies
    assert taught.create(2.0, operator=Operator.CROSS).operators.belief("cross").valid > 3


def test_models_have_credit_and_costs_by_the_name_of_the_settings() -> None:
    taught = Taught()
    taught.create(3.0, model_alias="large", prompt_tokens=100, completion_tokens=10)
    memory = taught.create(None, model_alias="small", prompt_tokens=30, completion_tokens=3)
    memory = taught.create(2.0, model_alias="", prompt_tokens=7)
    assert memory.models.belief("large").gain > 0 == memory.models.belief("small").gain
    assert (memory.spending["large"].births, memory.spending["large"].prompt_tokens) == (1, 100)
    assert set(memory.spending) == {"large", "small"}


def test_lessons_are_drawn_every_so_many_births_and_dropped_when_contradicted() -> None:
    taught = Taught()
    for _ in range(EVERY - 1):
        assert taught.create(None, of=idea()).lessons == ()
    memory = taught.create(None, of=idea())
    (lesson,) = memory.lessons
    assert "block-tiling against memory has not worked" in lesson.line
    assert f"k{EVERY}" not in lesson.text
    assert set(lesson.kernels) <= {f"k{number}" for number in range(1, EVERY + 1)}
    assert taught.create(3.0, of=idea("another")).lessons == ()


def test_an_improvement_is_one_percent() -> None:
    memory = Memory()
    for judged, speedup in ((1, 1.0), (5, 1.005), (9, 1.009), (20, 1.02), (25, 1.0)):
        memory = replace(memory, judged=judged).improved(speedup)
    assert memory.marked == 20
    assert replace(memory, judged=30).stalled == 10


def test_other_problems_are_where_credit_begins() -> None:
    given = Memory(experience=Experience(elsewhere={("block-tiling",): Tally(valid=30, gains=12.0, squares=5.0)}))
    assert given.experience.belief("block-tiling", "memory").gain > 0.3


def test_a_snapshot_does_not_change_when_the_run_goes_on() -> None:
    taught = Taught()
    before = taught.create(None, of=idea())
    seen = repr(before)
    taught.create(3.0, of=idea())
    taught.create(3.0, of=idea("another"), model_alias="m")
    assert repr(before) == seen


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_module, "IDEAS", 40)
    monkeypatch.setattr(memory_module, "SIGNATURES", 20)
    assert (IDEAS, SIGNATURES) == (512, 256)
    taught = Taught()
    for number in range(150):
        for message in ("a", "b"):
            word = "".join(chr(97 + int(digit)) for digit in str(number))
            memory = taught.create(None, of=idea(f"idea {number}"), message=f"{message} {word}")
    assert len(memory.outcomes) == 40
    assert len(memory.failures) == 20
    assert "idea 149" in memory.outcomes
    assert len(list(memory.exhausted())) == SHOWN_EXHAUSTED
    assert next(memory.exhausted()).idea.title == "idea 149"
    assert max(len(children) for children in memory.evidence.values()) == REMEMBERED
