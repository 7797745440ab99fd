import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kbevolve.configs.errors import UsageError
from kbevolve.evolve.cli.commands.bench_search import bench_search
from kbevolve.evolve.simulation.measured import packaged
from kbevolve.evolve.simulation.tournament import as_json, compare_searchers

TINY = {
    "format": 1,
    "name": "tiny",
    "about": "made up",
    "unit": "ms",
    "reference_ms": 1.0,
    "parameters": [["TILE", [16, 32, 64, 128]], ["STAGES", [1, 2, 3, 4]]],
    "values": [
        [[tile, stages], [2.0 / (1 + number) + 0.01 * look for look in range(3)]]
        for number, (tile, stages) in enumerate((t, s) for t in (16, 32, 64, 128) for s in (1, 2, 3, 4))
    ],
}


def test_searchers_meet_over_the_same_seeds() -> None:
    rows = {
        (one.searcher, one.budget): one
        for one in compare_searchers(["ladder-a"], searchers=("ours", "greedy"), budgets=(12, 24), seeds=4)
    }
    assert set(rows) == {(searcher, budget) for searcher in ("ours", "greedy") for budget in (12, 24)}
    assert rows["ours", 24].behind == rows["ours", 24].behind_se == 0
    greedy = rows["greedy", 24]
    assert greedy.behind == pytest.approx(rows["ours", 24].mean - greedy.mean)
    assert all(0 < one.mean <= 1 and one.se > 0 and 0 < one.validity <= 1 for one in rows.values())


def test_the_object_has_a_mean_for_every_budget() -> None:
    found = as_json(compare_searchers(["ladder-a"], searchers=("ours", "greedy"), budgets=(12, 24), seeds=2))
    assert set(found["ladder-a"]) == {"ours", "greedy"}
    assert set(found["ladder-a"]["ours"]["24"]) == {"mean", "se"}
    assert {"inflation", "validity", "duplicates"} <= set(found["ladder-a"]["greedy"])


def test_a_file_from_outside_is_searched(tmp_path: Path) -> None:
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(TINY))
    done = CliRunner().invoke(
        bench_search,
        ["--landscape", str(path), "--seeds", "2", "--budgets", "15", "--searchers", "greedy", "--jobs", "1", "--json"],
    )
    assert done.exit_code == 0, done.output
    found = json.loads(done.output.splitlines()[-1])
    assert set(found) == {"tiny"}
    assert found["tiny"]["ours"]["15"]["mean"] > 0.3


def test_the_table_says_who_is_behind() -> None:
    done = CliRunner().invoke(
        bench_search,
        ["--ladder", "ladder-a", "--seeds", "4", "--budgets", "60", "--searchers", "best-of-n", "--jobs", "1"],
    )
    assert done.exit_code == 0, done.output
    row = next(line for line in done.output.splitlines() if line.startswith("best-of-n"))
    assert " -" in row
    assert "behind ours" in done.output


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--searchers", "gredy"], "greedy"),
        (["--budgets", "many"], "--budgets"),
        (["--budgets", "5"], "from 10 on"),
    ],
)
def test_an_unknown_searcher_or_budget_is_refused(options: list[str], words: str) -> None:
    done = CliRunner().invoke(bench_search, ["--ladder", "ladder-a", "--seeds", "2", *options])
    assert isinstance(done.exception, UsageError)
    assert words in str(done.exception)


def test_an_unknown_ladder_is_answered_with_the_known_ones() -> None:
    done = CliRunner().invoke(bench_search, ["--ladder", "ladder-d"])
    assert done.exit_code == 2
    assert "'ladder-d' is not one of 'ladder-a'" in done.output


def test_measured_landscapes_come_with_the_package() -> None:
    """At least three spaces of 500 settings each, several timings of each."""
    assert {"layernorm", "matmul", "softmax"} <= set(packaged())
    for one in packaged().values():
        assert len(one.results) >= 500
        assert all(isinstance(timings, tuple) and len(timings) > 1 for timings in one.results.values())
