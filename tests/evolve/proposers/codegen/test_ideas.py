import json
import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from kbevolve.archive.records import Birth, BirthState, Idea, Operator
from kbevolve.configs.playbook import load_playbook
from kbevolve.evolve.proposers.base import Brief
from kbevolve.evolve.proposers.codegen.ideas import (
    choose_idea,
    parse_gain,
    parse_ideas,
    playbook_idea,
    shortlist,
)
from kbevolve.evolve.state.knowledge import IdeaOutcome
from kbevolve.evolve.state.memory import Memory
from kbevolve.evolve.state.normalise import bottleneck_class, folded
from kbevolve.islands.credit.claims import Calibration
from kbevolve.islands.credit.techniques import Experience
from kbevolve.islands.policy import WORK, Policy
from tests.evolve.doubles import KnownEvaluator, brief_of, kernel, problem, tried

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
def test_ideas_are_parsed_from_many_formats(answer: str) -> None:
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


def test_a_long_idea_is_cut() -> None:
    (idea,) = parsed(json.dumps({"title": "a " * 400, "mechanism": "b\n" * 4000}))
    assert len(idea.title) <= 100
    assert len(idea.mechanism) <= 2000
    assert idea.title.endswith("a…"), "behind a word"
    assert idea.mechanism.endswith("b…")
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


def idea(title: str, technique: str = "other", **facts: Any) -> Idea:
    return Idea(title=title, mechanism="m", technique=technique, **facts)


def brief(seed: int = 0, **facts: Any) -> Brief:
    return brief_of(Operator.REWRITE, seed=seed, **facts)


def knowing(*children: tuple[str, float | None], technique: str = "", times: int = 1) -> Memory:
    """After children of techniques with their gains (logs), or of one technique with ideas of these titles."""
    memory = Memory()
    for name, gain in children * times:
        experience = memory.experience.with_child(technique or name, "", 0, gain)
        memory = replace(memory, experience=experience, births=memory.births + 1)
    return memory


def test_the_choice_is_reproducible_and_prefers_the_first() -> None:
    ideas = [idea(name) for name in "abcd"]
    memory = Memory(births=1)
    assert choose_idea(ideas, brief(5, memory=memory)) == choose_idea(ideas, brief(5, memory=memory))
    blind = Policy(name="blind", floor=1.0)
    chosen = Counter(
        getattr(choose_idea(ideas, brief(seed, policy=blind, memory=memory)), "title", "") for seed in range(400)
    )
    assert chosen["a"] > chosen["b"] > chosen["d"] > 20


def test_a_technique_that_never_works_is_still_chosen_sometimes() -> None:
    ideas = [idea("a", "async-copy"), idea("v", "vectorize"), idea("f", "fusion")]
    memory = knowing(("async-copy", None), ("vectorize", 0.15), ("fusion", 0.0), times=6)
    counts = Counter(getattr(choose_idea(ideas, brief(seed, memory=memory)), "technique", "") for seed in range(500))
    assert counts["vectorize"] > 300
    assert 20 < counts["async-copy"] < 90, "the floor is what it keeps"


def test_claims_are_followed_as_far_as_those_of_their_author_came_true() -> None:
    ideas = [
        idea("shows", "vectorize", expected_gain=1.1, proposed_by="m"),
        idea("bold", expected_gain=3.0, proposed_by="m"),
    ]

    def chosen(gain: float) -> Counter[str]:
        """After claims of a factor of 3 that were followed by this gain (log)."""
        memory, calibration = knowing(("vectorize", 0.3), times=8), Calibration()
        for _ in range(16):
            calibration = calibration.after(math.log(3), gain)
        memory = replace(memory, births=8, claims={"m": calibration})
        return Counter(getattr(choose_idea(ideas, brief(seed, memory=memory)), "title", "") for seed in range(200))

    assert chosen(1.0)["bold"] > 150
    assert chosen(-0.5)["shows"] > 120


def test_the_first_child_carries_out_the_first_idea_that_no_other_child_has() -> None:
    ideas = [
        idea("fp16 pairs through TMA"), idea("Larger tiles", expected_gain=9.0), idea("Wide loads", expected_gain=1.2)
    ]  # fmt: skip
    assert choose_idea(ideas, brief(1)) == ideas[0]
    assert choose_idea(ideas, brief(1), [idea("Pairs of fp16 through TMA")]) == ideas[1]
    assert choose_idea(ideas, brief(1), ideas[:2]) == ideas[2]
    assert choose_idea(ideas, brief(1), ideas) in ideas, "rather twice than none"


def test_an_idea_of_another_child_promises_half() -> None:
    ideas = [idea("Larger tiles", expected_gain=3.0), idea("Wide loads", expected_gain=2.0)]
    memory = Memory(births=1)

    def chosen(taken: str) -> Counter[str]:
        return Counter(
            getattr(choose_idea(ideas, brief(seed, memory=memory), [idea(taken)]), "title", "") for seed in range(200)
        )

    assert chosen("something else")["Larger tiles"] == 200
    assert chosen("Larger tiles!")["Wide loads"] == 200


def test_a_tried_idea_is_not_chosen_again() -> None:
    memory = tried((idea("Larger tiles."), 1.2))
    assert choose_idea([idea("larger-tiles"), idea("New")], brief(memory=memory)) == idea("New")
    assert choose_idea([idea("larger tiles")], brief(memory=memory)) is None


def failing(title: str, *messages: str) -> IdeaOutcome:
    outcome = IdeaOutcome(idea=idea(title))
    for number, message in enumerate(messages):
        birth = Birth(
            run="r", generation=number, island=0, slot=0, operator=Operator.MUTATE, state=BirthState.CREATED,
            kernel=f"k{number}",
        )  # fmt: skip
        found = replace(KnownEvaluator().evaluate(problem(), kernel(WRONG=1)), message=message)
        outcome = outcome.after(birth, found, None)
    return outcome


def test_one_failed_implementation_is_not_a_failed_idea() -> None:
    for messages, open_ in ((("off by 3",), True), (("off by 3", "off by 4"), False), (("off by 3", "nan"), False)):
        outcome = failing("Larger tiles", *messages)
        memory = Memory(outcomes={"larger tiles": outcome})
        found = choose_idea([idea("Larger tiles")], brief(memory=memory))
        assert (found is not None) == open_, messages
        assert bool(outcome.exhausted) == (messages == ("off by 3", "nan")), "two signatures, not two tries"


def test_islands_prefer_their_own_techniques() -> None:
    ideas = [idea("w", "cheap-math"), idea("t", "vectorize")]
    policy, memory = Policy(name="arithmetic", techniques=WORK), Memory(births=1)
    counts = Counter(
        getattr(choose_idea(ideas, brief(seed, policy=policy, memory=memory)), "title", "") for seed in range(400)
    )
    assert counts["w"] > 1.3 * counts["t"] > 0


def test_the_playbook_gives_an_untried_idea_while_it_has_one() -> None:
    entries = load_playbook().ideas[:3]
    done = [(idea(entry.title), 1.0) for entry in entries]
    assert playbook_idea(entries, brief(memory=tried(*done[:2]))).title == entries[2].title
    given = playbook_idea(entries, brief(memory=tried(*done)))
    assert given.title in {entry.title for entry in entries}
    assert given.proposed_by == "playbook"


def test_the_shortlist_leaves_out_what_failed_and_keeps_the_order_of_the_file() -> None:
    entries = load_playbook().ideas
    spoilt = entries[0].technique
    memory = knowing((spoilt, None), times=12)
    memory = replace(memory, experience=against(memory, entries[0].bottleneck, spoilt))
    shown = Counter(one.title for seed in range(60) for one in shortlist(entries, brief(seed, memory=memory), 6))
    usual = Counter(one.title for seed in range(60) for one in shortlist(entries, brief(seed), 6))
    assert shown[entries[0].title] < 0.5 * usual[entries[0].title]
    positions = [entries.index(one) for one in shortlist(entries, brief(3), 6)]
    assert positions == sorted(positions)
    assert len(positions) == 6
    exhausted = Memory(outcomes={folded(entries[1].title): failing(entries[1].title, "a", "b")})
    assert entries[1] not in shortlist(entries[:4], brief(memory=exhausted), 3)


def against(memory: Memory, bottleneck: str, technique: str) -> Experience:
    experience = memory.experience
    for _ in range(12):
        experience = experience.with_child(technique, bottleneck_class(bottleneck), 0, None)
    return experience
