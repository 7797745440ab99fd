"""The views: documented, and of one opinion with the program."""

import re
import shlex
import sqlite3
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner
from sqlite_utils.cli import cli as sqlite_utils

from kbevolve.archive import schema
from kbevolve.archive.migrations import MIGRATIONS, READABLE
from kbevolve.archive.parts import changed, grouped
from kbevolve.archive.records import Birth, BirthState, Comparison, Evaluation, Kernel, Operator, Verdict
from kbevolve.archive.store import Archive
from kbevolve.archive.views import VIEWS
from kbevolve.configs.reference import as_model_new
from tests.small_archive import confirmation

PAGE = (Path(__file__).parents[2] / "docs" / "archive.md").read_text()


def rows(path: Path, sql: str) -> list[dict[str, Any]]:
    file = sqlite3.connect(path)
    file.row_factory = sqlite3.Row
    found = [dict(row) for row in file.execute(sql)]
    file.close()
    return found


def test_the_page_names_every_view_with_its_columns(small_archive: Any) -> None:
    documented = {name: columns.split(", ") for name, columns in re.findall(r"^\| `(\w+)` \|.*\| (.*) \|$", PAGE, re.M)}
    assert list(documented) == list(VIEWS)
    for name, columns in documented.items():
        assert [row["name"] for row in rows(small_archive.path, f"pragma table_info({name})")] == columns
    tables = {row["name"] for row in rows(small_archive.path, "select name from sqlite_master where type = 'table'")}
    assert tables - {"sqlite_sequence"} <= set(re.findall(r"`(\w+)`", PAGE))


@pytest.mark.parametrize("line", [line for line in PAGE.splitlines() if line.startswith("sqlite-utils ")])
def test_documented_queries_run(line: str, make_archive: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(make_archive(confirmed=True).path.parent)
    outcome = CliRunner().invoke(sqlite_utils, shlex.split(line)[1:])
    assert outcome.exit_code == 0, outcome.output
    assert len(outcome.output.splitlines()) >= 2


def test_attempts_are_the_births_with_their_verdicts(small_archive: Any) -> None:
    found = rows(small_archive.path, "select * from attempts order by generation, island, slot")
    assert len(found) == len(small_archive.births)
    for row, birth in zip(found, small_archive.births, strict=True):
        evaluation = small_archive.evaluations.get(birth.kernel)
        assert row["kernel"] == birth.kernel
        assert row["parent"] == (birth.parents[0] if birth.parents else None)
        assert row["verdict"] == (evaluation.verdict.name.lower() if evaluation else None)
        assert row["speedup"] == (evaluation.timing.speedup if evaluation else None)
    assert {row["idea"] for row in found} == {None, "Keep a block of C in registers", "Unroll the inner loop"}


def test_lineage_has_each_parent_and_the_gain(small_archive: Any) -> None:
    found = {(row["kernel"], row["position"]): row for row in rows(small_archive.path, "select * from lineage")}
    created = [birth for birth in small_archive.births if birth.kernel and birth.state is BirthState.CREATED]
    assert len(found) == sum(len(birth.parents) for birth in created)
    for birth in created:
        for position, parent in enumerate(birth.parents):
            row = found[birth.kernel, position]
            assert row["parent"] == parent
            child, before = (small_archive.evaluations[one].timing.speedup for one in (birth.kernel, parent))
            assert row["gain"] == (child / before if child and before else None)


def test_timed_calls_are_those_of_the_blocks(small_archive: Any) -> None:
    best = small_archive.evaluations[small_archive.best]
    sql = f"select time_ms from timed_calls where kernel = '{best.kernel}' and role = 'child' order by round, call"
    assert tuple(row["time_ms"] for row in rows(small_archive.path, sql)) == best.blocks[0].times_ms


@pytest.mark.parametrize("seed", range(60))
def test_the_best_kernel_is_the_one_that_every_command_names(make_archive: Any, seed: int) -> None:
    """Contests, later failures, shared binaries and the reference, at random."""
    rng = Random(seed)
    sample = make_archive(generations=rng.randint(0, 4), confirmed=rng.random() < 0.3)
    kernels = [one for one, found in sample.evaluations.items() if found.verdict is Verdict.CORRECT]
    with Archive(sample.path) as archive:
        for _ in range(rng.randint(0, 3)):
            failed = changed(sample.evaluations[rng.choice(kernels)], verdict=Verdict.WRONG, speedup=None, blocks=())
            archive.add_evaluation(failed)
        reference = Kernel.from_source(as_model_new(sample.problem.source_for("cpu")))
        first = grouped(
            Evaluation, kernel=reference.id, problem=sample.problem.id, device=sample.run.device, precision="fp32",
            verdict=Verdict.CORRECT, speedup=9.0, speedup_low=8.9, speedup_high=9.1, time_ms=1.0, reference_ms=9.0,
        )  # fmt: skip
        for slot, operator, note in ((20, Operator.SEED, "the reference itself"), (21, Operator.TUNE, "as before")):
            state = BirthState.CREATED if slot == 20 else BirthState.DUPLICATE
            birth = Birth(
                run=sample.run.id, generation=0, island=0, slot=slot, operator=operator, state=state,
                kernel=reference.id, note=note,
            )  # fmt: skip
            archive.add_birth(birth, kernel=reference)
        archive.add_evaluation(first)
        twin = Kernel.from_source(f"twin = {seed}\n")
        lender = rng.choice([*kernels, *[sample.best] * len(kernels)])
        birth = Birth(
            run=sample.run.id, generation=0, island=0, slot=22, operator=Operator.TUNE, state=BirthState.CREATED,
            kernel=twin.id, parents=(lender,),
        )  # fmt: skip
        archive.add_birth(birth, kernel=twin)
        archive.add_evaluation(changed(sample.evaluations[lender], kernel=twin.id, identical_to=lender))
        met = rng.sample(kernels, min(len(kernels), rng.randint(0, 6)))
        for number, kernel in enumerate(met):
            one = confirmation(
                sample.run.id, kernel, generation=100 + number // 4, speedup=rng.uniform(0.5, 3),
                purpose=rng.choice(["challenge", "final", "final", "final"]), rival=rng.choice([None, *met]),
                comparison=rng.choice(list(Comparison)), ratio_low=rng.uniform(0.5, 2),
            )  # fmt: skip
            archive.add_contest([one])
        summary = archive.runs.summary(sample.run)
    found = rows(sample.path, "select * from best_kernels")
    assert [row["kernel"] for row in found] == ([summary.best_kernel] if summary.best_kernel else [])
    for row in found:
        published = summary.champion or (summary.best and summary.best.timing)
        assert (row["speedup"], row["speedup_low"]) == (published.speedup, published.speedup_low)
        assert row["confirmed"] == (summary.champion is not None)


def test_an_archive_of_before_gets_the_views_when_it_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "old.db"
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", MIGRATIONS[:READABLE])
        Archive(path).close()
    before = path.read_bytes()
    views = "select name from sqlite_master where type = 'view'"
    with Archive(path, read_only=True) as reader:
        assert reader.runs.summaries() == []
        assert path.read_bytes() == before
        assert rows(path, views) == []
        Archive(path).close()
        assert {row["name"] for row in rows(path, views)} == set(VIEWS)
        assert reader.version() > 1, "it reads the file, not a copy of it in memory"
