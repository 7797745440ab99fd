"""Where evaluations are limited, they decide how many islands share them."""

import json
from typing import Any

import pytest

from kbevolve.configs.settings import Settings


@pytest.mark.parametrize(("evaluations", "islands"), [(1, 1), (149, 1), (150, 2), (399, 2), (400, 4), (10**6, 4)])
def test_the_budget_decides_where_no_setting_does(evaluations: int, islands: int) -> None:
    chosen = Settings.from_tree({"budget": {"evaluations": evaluations}})
    assert chosen.search.islands == islands
    assert chosen.search.generations >= evaluations, "the limit that was given is the one that stops the run"


@pytest.mark.parametrize(
    ("tree", "islands"),
    [
        ({}, 4), ({"budget": {"tokens": 5}}, 4), ({"budget": {"evaluations": 50}, "search": {"islands": 3}}, 3),
        ({"budget": {"evaluations": None}, "search": {"generations": 7}}, 4),
    ],
)  # fmt: skip
def test_who_says_how_many_gets_so_many(tree: dict[str, Any], islands: int) -> None:
    chosen = Settings.from_tree(tree)
    assert chosen.search.islands == islands
    assert chosen.search.generations == tree.get("search", {}).get("generations", chosen.search.generations)


def test_a_run_keeps_its_islands_when_it_may_judge_more() -> None:
    run = Settings.from_tree({"budget": {"evaluations": 100}})
    again = Settings.load(base=json.loads(run.model_dump_json()), overrides={"budget.evaluations": 1000})
    assert (again.search.islands, again.budget.evaluations) == (1, 1000)
