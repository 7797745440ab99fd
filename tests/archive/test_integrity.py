"""Each kind of damage is found, counted and explained; a whole archive has none."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.integrity import Finding
from kbevolve.archive.records import Kernel
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import ArchiveError
from tests.small_archive import Sample

BIRTH = (
    "insert into births (run, generation, island, slot, operator, state, parents, kernel, note, model, prompt_tokens,"
    " completion_tokens, seconds, at)"
    " values ((select id from runs), 99, ?, 0, 'TUNE', 'CREATED', ?, ?, '', '', 0, 0, 0, '')"
)
KERNEL = "insert into kernels values (?, 'TORCH', ?)"


def findings(path: Path) -> list[Finding]:
    with Archive(path, read_only=True) as archive:
        return archive.check()


def test_a_whole_archive_has_no_findings(make_archive: Any) -> None:
    assert findings(make_archive(confirmed=True).path) == []


@pytest.mark.parametrize(
    ("changes", "what", "case"),
    [
        ([("drop trigger runs_no_update", ())], "Tables whose rows may be changed", "runs"),
        ([(KERNEL, ("0" * 16, "x = 1"))], "does not give their id", "0" * 16),
        ([(BIRTH, (0, "[]", "gone"))], "References to rows that are missing", "births, row"),
        ([(BIRTH, (0, '["gone"]', None))], "Parents that are no kernel", "gone of matmul-"),
        ([(BIRTH, (0, '{"a": 1}', None))], "no list of kernels", "g99/i0/s0"),
        ([(BIRTH, (0, "[", None))], "no list of kernels", "g99/i0/s0"),
    ],
)  # fmt: skip
def test_damage_is_named(small_archive: Sample, changes: list[Any], what: str, case: str) -> None:
    with sqlite3.connect(small_archive.path) as file:
        for sql, parameters in changes:
            file.execute(sql, parameters)
    file.close()
    (found,) = findings(small_archive.path)
    assert what in found.what
    assert case in found.cases[0]
    assert found.count == 1
    assert "rm-run" in found.remedy


def test_circles_are_found_in_first_births_only(small_archive: Sample) -> None:
    with sqlite3.connect(small_archive.path) as file:
        names = [Kernel.from_source(f"circle = {number}\n").id for number in range(5)]
        for number, name in enumerate(names):
            file.execute(KERNEL, (name, f"circle = {number}\n"))
        for island, (child, parent) in enumerate([(0, 1), (1, 2), (2, 0), (3, 3), (4, 0)]):
            file.execute(BIRTH, (island, f'["{names[parent]}"]', names[child]))
        # A parent that is proposed again as a child of its child closes no circle.
        again = small_archive.births[-2]
        file.execute(BIRTH, (7, f'["{again.kernel}"]', again.parents[0]))
    file.close()
    (found,) = findings(small_archive.path)
    assert (found.what, found.count) == ("Kernels that are their own ancestors", 2)


def test_a_damaged_page_is_reported_with_the_way_to_save_the_rest(make_archive: Any) -> None:
    path = make_archive(generations=40).path
    whole = path.read_bytes()
    found = []
    for page in range(10, len(whole) // 4096 - 4, 12):
        path.write_bytes(whole[: page * 4096] + b"\x7f" * 4096 + whole[(page + 1) * 4096 :])
        try:
            found += [one.remedy for one in findings(path)]
        except ArchiveError as error:
            found.append(str(error))
    assert len([one for one in found if "save what can be read: sqlite3 FILE .recover" in one]) > 5
