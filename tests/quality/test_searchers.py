"""What the search is worth, in small: a change that loses this is a mistake, whatever else it brings."""

import pytest

from kbevolve.evolve.simulation.searchers.ours import VERIFIED_FROM
from kbevolve.evolve.simulation.tournament import compare_searchers


@pytest.mark.slow
def test_our_searcher_is_ahead_of_sampling_and_level_with_greedy_at_150() -> None:
    # Of 12 searches on ladder-b one standard error is as large as the lead over some searchers.
    rows = compare_searchers(["ladder-a", "ladder-b", "ladder-c"], budgets=(150,), seeds=40, jobs=2)
    for one in rows:
        if one.searcher in ("best-of-n", "openevolve", "shinka"):
            assert one.behind > 2 * one.behind_se, one
        if one.searcher == "greedy":
            assert one.behind > -2 * one.behind_se, one  # level: docs/results/2026-11-23-searchers.md
        if one.searcher == "ours":
            assert abs(one.inflation) < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("space", ["matmul", "softmax", "layernorm"])
def test_our_searcher_is_behind_none_on_what_was_measured(space: str) -> None:
    searchers = ("ours", "best-of-n", "greedy", "openevolve", "shinka")
    for one in compare_searchers([space], searchers=searchers, budgets=(50, 150), seeds=40, jobs=2):
        if one.searcher in ("greedy", "shinka"):  # spaces of some hundred settings are soon known whole
            assert one.behind > -one.behind_se, one
        elif one.searcher == "openevolve":  # its real database draws differently in each process
            assert one.behind > 0, one
        elif one.searcher == "best-of-n":
            assert one.behind > 2 * one.behind_se, one
        elif one.budget >= VERIFIED_FROM:
            assert abs(one.inflation) < 0.03  # few of its claims are seen: of matmul half spread by more than 4 %
