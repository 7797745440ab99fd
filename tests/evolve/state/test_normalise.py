"""Failures, bottlenecks and titles in other words count as one."""

import csv
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

from kbevolve.archive.records import Evaluation, Verdict
from kbevolve.configs.playbook import load_playbook
from kbevolve.evolve.state.normalise import (
    ARITHMETIC,
    IDLE,
    LATENCY,
    LAUNCHES,
    LENGTH,
    MEMORY,
    bottleneck_class,
    first_line,
    same_idea,
    signature,
)
from tests.evolve.doubles import KnownEvaluator, kernel, problem


def failed(message: str, verdict: Verdict = Verdict.WRONG) -> Evaluation:
    return replace(KnownEvaluator().evaluate(problem(), kernel(WRONG=1)), message=message, verdict=verdict)


def test_what_differs_by_chance_is_left_out() -> None:
    pairs = [
        ("first wrong element at (0, 512): 1.5e-3", "\nfirst wrong element at (7, 12): -2"),
        ("/tmp/a1/x/kernel.cu:12: error: 'i' was not declared", "/var/b/kernel.cu:7: error: 'i' was not declared"),
        ("illegal address 0x7fde0", "illegal address 0x1\nand more"),
        ("kernel_0123456789abcdef.so: undefined symbol", "kernel_0123456789abcdee.so: undefined symbol"),
    ]
    for one, other in pairs:
        assert signature(failed(one)) == signature(failed(other)), one
    assert signature(failed("a")) != signature(failed("a", Verdict.CRASHED))
    assert signature(failed("'i' was not declared")) != signature(failed("'j' was not declared"))


def test_a_line_is_short_and_names_the_verdict() -> None:
    assert first_line(failed("\n\n  off by 3\nmore", Verdict.BUILD_FAILED)) == "build failed: off by 3"
    assert len(first_line(failed("x" * 5000))) <= LENGTH + 10
    assert first_line(failed("", Verdict.TIMED_OUT)) == "timed out"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("memory bandwidth", MEMORY), ("DRAM traffic", MEMORY), ("uncoalesced loads", MEMORY),
        ("shared memory", MEMORY),
        ("memory latency", LATENCY), ("dependency chains", LATENCY), ("launch overhead", LAUNCHES),
        ("idle SMs, low occupancy", IDLE), ("compute bound", ARITHMETIC), ("instruction issue", ARITHMETIC),
        ("special functions", ARITHMETIC), ("", ""), ("something else", ""),
    ],
)  # fmt: skip
def test_words_have_a_class(words: str, expected: str) -> None:
    assert bottleneck_class(words) == expected


def test_all_of_the_playbook_has_one() -> None:
    assert all(bottleneck_class(idea.bottleneck) for idea in load_playbook().ideas)


def test_ideas_of_a_recorded_model_are_the_same_where_their_titles_say_so() -> None:
    """Titles of the ideas for the first children of three problems; islands had not seen each other's."""
    with open(Path(__file__).with_name("titles.csv")) as file:
        ideas = [(row["problem"], row["island"], row["title"]) for row in csv.DictReader(file)]
    pairs = [
        (one[2], other[2])
        for one, other in combinations(ideas, 2)
        if one[0] == other[0] and one[1] != other[1] and same_idea(one[2], other[2])
    ]
    assert len(pairs) == 26
    assert ("M-fastest tile order", "Tile order with x row tiles fastest") in pairs
    assert not any("fp32 register tile" in one and "mma.sync m16n8k16" in other for one, other in pairs)


def test_titles_of_fillers_are_not_the_same() -> None:
    assert not same_idea("on the one", "in the")
    assert same_idea("Larger tiles.", "larger-tiles")
