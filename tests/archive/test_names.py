"""Runs, kernels and problems are found by their names, or a message says what there is."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.store import Archive
from kbevolve.configs.errors import ArchiveError
from kbevolve.configs.problem import Problem
from tests.archive.conftest import make_run


def test_runs_and_kernels_are_named_by_their_beginnings(small_archive: Any, make_archive: Any) -> None:
    make_archive(run_id="matmul-20261121-083012-ffff", seed=5, generations=1)
    with Archive(small_archive.path) as archive:
        assert archive.runs.get().id == archive.runs.get("latest").id == "matmul-20261121-083012-ffff"
        assert archive.runs.get("matmul-20261121-083012-3").id == small_archive.run.id
        with pytest.raises(ArchiveError, match=r"2 runs start with 'matmul': .*3f2a, .*ffff; give more"):
            archive.runs.get("matmul")
        with pytest.raises(ArchiveError, match=r"no run 'matmul-20261121-083012-3f2b' in .*Nearest: .*-3f2a"):
            archive.runs.get("matmul-20261121-083012-3f2b")
        assert archive.kernels.get(small_archive.best[:9]).id == small_archive.best
        with pytest.raises(ArchiveError, match="more than 4 kernels start with ''"):
            archive.kernels.get("")
        with pytest.raises(ArchiveError, match="no kernel 'zz'"):
            archive.kernels.get("zz")
        assert archive.find(small_archive.best[:9]) == archive.kernels.get(small_archive.best)
        assert archive.find("latest") == archive.runs.get()
        with pytest.raises(ArchiveError, match="no kernel and no run 'zz'"):
            archive.find("zz")


def test_an_exact_id_wins_over_a_longer_one(small_archive: Any, make_archive: Any) -> None:
    make_archive(run_id=small_archive.run.id + "0", seed=5, generations=1)
    with Archive(small_archive.path) as archive:
        assert archive.runs.get(small_archive.run.id).id == small_archive.run.id


def test_an_empty_archive_says_how_to_fill_it(archive: Archive) -> None:
    assert archive.runs.summaries() == []
    with pytest.raises(ArchiveError, match="has no run yet; start one: kbevolve run"):
        archive.runs.get()
    with pytest.raises(ArchiveError, match=r"no run of L1/matmul in :memory:\. There are none\."):
        archive.runs.latest_of("L1/matmul")


def test_a_problem_is_found_by_name_path_and_file(tmp_path: Path, archive: Archive, problem: Problem) -> None:
    own = dataclasses.replace(problem, name="mine", path=tmp_path / "mine.py")
    archive.add_problem(own)
    archive.add_run(make_run(own, problem_name="mine"))
    for name in ("mine", str(tmp_path / "mine.py"), "elsewhere/mine.py"):
        assert archive.runs.latest_of(name).problem == own.id
    with pytest.raises(ArchiveError, match="Nearest: mine"):
        archive.runs.latest_of("min")
