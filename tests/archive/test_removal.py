"""A run is removed with what only it uses; everything else stays as it was, and stays refused."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.parts import changed
from kbevolve.archive.records import Kernel, ProblemCard
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import ArchiveError
from kbevolve.configs.problem import parse_problem
from tests.archive.test_merging import content
from tests.small_archive import PROBLEM, Sample


def removed(path: Path, run: str) -> Any:
    with Archive(path) as archive:
        return archive.remove_run(archive.runs.get(run))


def triggers(path: Path) -> set[str]:
    file = sqlite3.connect(path)
    found = {row[0] for row in file.execute("select sql from sqlite_master where type = 'trigger'")}
    file.close()
    return found


def test_what_only_the_run_uses_goes_and_the_rest_stays(make_archive: Any) -> None:
    kept = make_archive("two.db", seed=1, run_id="kept", confirmed=True)
    before, refused = content(kept.path), triggers(kept.path)
    gone = make_archive("two.db", seed=2, run_id="gone", confirmed=True)
    report = removed(kept.path, "gone")
    assert report.attempts == len(gone.births)
    assert (report.kernels, report.evaluations, report.kept) == (len(gone.evaluations), len(gone.evaluations), 0)
    after = content(kept.path)
    assert {table for table in after if after[table] != before[table]} <= {"cards"}, "a card is of a problem"
    assert triggers(kept.path) == refused
    with Archive(kept.path) as archive:
        assert archive.check() == []
    with sqlite3.connect(kept.path) as file, pytest.raises(sqlite3.IntegrityError, match="insert-only"):
        file.execute("delete from runs")
    file.close()


def test_the_last_run_leaves_an_empty_archive(make_archive: Any) -> None:
    sample = make_archive(confirmed=True)
    removed(sample.path, "latest")
    assert not any(content(sample.path).values())


def test_kernels_that_others_use_stay_with_their_evaluations(make_archive: Any) -> None:
    gone = make_archive("two.db", run_id="gone")
    make_archive("two.db", run_id="kept", generations=2)
    lender, alone = Kernel.from_source("lender = 1\n"), Kernel.from_source("alone = 1\n")
    with Archive(gone.path) as archive:
        shared = {birth.kernel for birth in archive.runs.births("kept") if birth.kernel}
        found = gone.evaluations[gone.best]
        assert gone.best not in shared
        # A kernel without lineage has the verdict of the best kernel of the run that goes.
        archive.add_found([(gone.problem, alone, changed(found, kernel=alone.id, identical_to=gone.best))])
        archive.add_found([(gone.problem, lender, changed(found, kernel=lender.id))])
    report = removed(gone.path, "gone")
    with Archive(gone.path) as archive:
        assert set(archive.kernels.ids()) == shared | {gone.best, lender.id, alone.id}
        assert archive.kernels.evaluations(gone.best) == [found]
        assert report.kept == len(shared) + 1
        assert [one.run.id for one in archive.runs.summaries()] == ["kept"]
        assert archive.check() == []


def test_a_file_with_dangling_references_can_be_tidied(small_archive: Sample) -> None:
    with sqlite3.connect(small_archive.path) as file:
        file.execute(
            "insert into placements (run, island, niche, kernel, generation, via) values ('no run', 0, '', 'no', 0, '')"
        )
    file.close()
    removed(small_archive.path, "latest")
    assert [len(rows) for table, rows in content(small_archive.path).items() if rows] == [1]


def test_an_open_search_forgets_what_was_removed(make_archive: Any) -> None:
    kept, gone = make_archive("two.db", seed=1, run_id="kept"), make_archive("two.db", seed=2, run_id="gone")
    with Archive(kept.path, read_only=True) as reader:
        index = reader.search_index()
        assert {hit.run for hit in index.find("UNROLL", limit=1000)} == {"kept", "gone"}
        removed(gone.path, "gone")
        make_archive("two.db", seed=3, run_id="newer", generations=1)
        hits = index.find("UNROLL", limit=1000)
        assert {hit.run for hit in hits} == {"kept", "newer"}
        assert all("UNROLL" in reader.kernels.get(hit.id).source for hit in hits if hit.table == "kernels")


def test_a_problem_that_another_process_has_begun_with_stays(make_archive: Any) -> None:
    gone = make_archive("two.db", run_id="gone")
    other = parse_problem(f"{PROBLEM}\n# another\n", name="L1/other", path=Path("other.py"))
    with Archive(gone.path) as archive:
        archive.add_problem(other)
        removed(gone.path, "gone")
        archive.add_card(ProblemCard(problem=other.id, device="cpu/x", precision="fp32"))
        assert archive.problems.get(other.id).name == "L1/other"
        with pytest.raises(ArchiveError):
            archive.problems.get(gone.problem.id)
