"""The engine's benchmark: its bulk path leaves what a search leaves, and a large run costs no more than a small one."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from benchmarks.engine.bulk import fill
from benchmarks.engine.measuring import measure, search_on
from benchmarks.engine.workload import bulk_kernel, evaluation_of, open_run, start
from kbevolve.archive.records import Verdict
from kbevolve.archive.store import Archive

#: Columns that tell when something was written.
MOMENTS = ("at", "seconds")


def tables(path: Path) -> dict[str, list[dict[str, Any]]]:
    with Archive(path) as archive:
        found = {
            table: archive._connection.rows(f"select * from {table}")
            for table in (
                "runs",
                "kernels",
                "births",
                "evaluations",
                "blocks",
                "placements",
                "generation_ends",
                "texts",
            )
        }
    return {
        table: sorted(
            ({name: value for name, value in dict(row).items() if name not in (*MOMENTS, "number")} for row in rows),
            key=repr,
        )
        for table, rows in found.items()
    }


def test_the_bulk_path_leaves_the_rows_that_a_search_leaves(tmp_path: Path) -> None:
    fill(tmp_path / "bulk.db", 200)
    with Archive(tmp_path / "searched.db") as archive:
        search = search_on(archive, open_run(archive), 50, map(bulk_kernel, itertools.count()))
        search.run()
    correct = [number for number in range(200) if evaluation_of(bulk_kernel(number)).verdict is Verdict.CORRECT]
    bulk, searched = tables(tmp_path / "bulk.db"), tables(tmp_path / "searched.db")
    for table in bulk:
        assert bulk[table] == searched[table], table
    with Archive(tmp_path / "bulk.db") as archive:
        again = search_on(archive, archive.runs.get(), 50, iter(()))
        again.run()
        history = again.population.history()
    assert again.population.islands == search.population.islands, "replayed otherwise than lived through"
    assert again.population.totals.verdicts == search.population.totals.verdicts
    assert [member.kernel for member in history] == [start(), *map(bulk_kernel, correct)]


@pytest.mark.slow
def test_a_run_of_many_kernels_is_resumed_and_bred_on_quickly(tmp_path: Path) -> None:
    fill(tmp_path / "full.db", 2_000)
    found = measure(tmp_path / "full.db", 2_000, 200)
    # A tenth of what two quiet cores of 2026 do: only what is of another order fails on a busy machine.
    assert found["children_per_s"] > 30
    assert found["sample_ms"] < 10
    assert found["insert_ms"] < 10
    assert found["replay_s"] < 10
