import json
from collections import Counter
from random import Random
from typing import Any

import pytest

from kbevolve.archive.records import Idea
from kbevolve.configs.playbook import load_playbook
from kbevolve.evolve.ideas import choose_idea, parse_gain, parse_ideas, playbook_idea

ONE = {"title": "Larger tiles", "mechanism": "Fewer loads.", "technique": "block-tiling", "expected_gain": 1.3}
TWO = {"title": "Wide loads", "mechanism": "float4.", "technique": "vectorize", "bottleneck": "bandwidth"}
BOTH = json.dumps([ONE, TWO], indent=2)


def parsed(answer: str) -> tuple[Idea, ...]:
    return parse_ideas(answer, load_playbook(), proposed_by="m")


@pytest.mark.parametrize(
    "answer",
    [
        BOTH,
        f"```json\n{BOTH}\n```",
        f"Sure! Here {{are}} my ideas:\n```\n{BOTH}\n```\nHope [this] helps.",
        BOTH.replace("\n  }", ",\n  }").replace("\n]", ",\n]"),
        json.dumps({"ideas": [ONE, TWO]}),
        f"{json.dumps(ONE)}\n\n{json.dumps(TWO)}",
        repr([ONE, TWO]),
        BOTH.replace("Fewer loads.", "Fewer\nloads."),
        BOTH[:-2] + ',\n  {"title": "Cut sho',
        json.dumps([{key.title(): value for key, value in idea.items()} for idea in (ONE, TWO)]),
        json.dumps([ONE, TWO, ONE, {**TWO, "title": "wide-loads!"}, {"title": ""}, {"name": "x"}, 3]),
    ],
    ids=[
        "array", "fence", "prose", "trailing commas", "wrapped", "one by one", "python", "line break in a string",
        "cut short", "other case", "repetitions and rubbish",
    ],
)  # fmt: skip
def test_ideas_are_read_from_any_shape(answer: str) -> None:
    assert parsed(answer) == (
        Idea(
            title="Larger tiles",
            mechanism="Fewer loads.",
            technique="block-tiling",
            expected_gain=1.3,
            proposed_by="m",
        ),
        Idea(title="Wide loads", mechanism="float4.", technique="vectorize", bottleneck="bandwidth", proposed_by="m"),
    )


@pytest.mark.parametrize("answer", ["", "Use larger tiles.", "[]", "{}", "[1, 2]", "{'a': ", "]{", "[" * 5000])
def test_an_answer_without_ideas_has_none(answer: str) -> None:
    assert parsed(answer) == ()


def test_techniques_come_from_the_closed_list() -> None:
    said = [
        {**ONE, "title": str(n), "technique": name} for n, name in enumerate(["Tensor Cores", "fuse", "magic", None])
    ]
    assert [idea.technique for idea in parsed(json.dumps(said))] == ["tensor-cores", "fusion", "other", "other"]


def test_a_long_winded_idea_is_cut() -> None:
    (idea,) = parsed(json.dumps({"title": "a " * 400, "mechanism": "b\n" * 4000}))
    assert len(idea.title) <= 100
    assert len(idea.mechanism) <= 800
    assert "\n" not in idea.mechanism


@pytest.mark.parametrize(
    ("value", "gain"),
    [
        (1.3, 1.3), (2, 2.0), ("1.3x", 1.3), ("1.2-1.5x", 1.2), ("10 %", 1.1), ("10-30%", 1.1), ("about 1.5", 1.5),
        (0.2, None), ("none", None), (None, None), (True, None), ([], None), (1e9, None), (float("nan"), None),
    ],
)  # fmt: skip
def test_gains_are_factors(value: Any, gain: float | None) -> None:
    assert parse_gain(value) == gain


def idea(title: str) -> Idea:
    return Idea(title=title, mechanism="m", technique="other")


def test_the_choice_is_replayable_and_prefers_the_first() -> None:
    ideas = [idea(name) for name in "abcd"]
    assert choose_idea(ideas, (), Random(5)) == choose_idea(ideas, (), Random(5))
    chosen = Counter(getattr(choose_idea(ideas, (), Random(seed)), "title", "") for seed in range(400))
    assert chosen["a"] > chosen["b"] > chosen["d"] > 20


def test_what_was_tried_is_not_chosen_again() -> None:
    tried = {idea("Larger tiles."): 1.2}
    assert choose_idea([idea("larger-tiles"), idea("New")], tried, Random(0)) == idea("New")
    assert choose_idea([idea("larger tiles")], tried, Random(0)) is None


def test_the_playbook_gives_an_untried_idea_as_long_as_it_can() -> None:
    entries = load_playbook().ideas[:3]
    tried = {idea(entry.title): None for entry in entries[:2]}
    assert playbook_idea(entries, tried, Random(0)).title == entries[2].title
    tried[idea(entries[2].title)] = None
    given = playbook_idea(entries, tried, Random(0))
    assert given.title in {entry.title for entry in entries}
    assert given.proposed_by == "playbook"
