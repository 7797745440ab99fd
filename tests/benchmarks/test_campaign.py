"""The tables of a campaign come from its archives alone."""

import sqlite3

import pytest

from benchmarks.campaign import main, proposed, rows
from tests.small_archive import Sample


def test_every_child_has_a_row_and_the_best_kernel_is_named(
    small_archive: Sample, capsys: pytest.CaptureFixture[str]
) -> None:
    main([str(small_archive.path)])
    problems, children = capsys.readouterr().out.split("\n\n")
    best = small_archive.evaluations[small_archive.best].timing.speedup
    assert best is not None
    assert problems.count("\n") == 2
    assert f"| **{best:.3g}** |" in problems
    born = [birth for birth in small_archive.births if birth.generation]
    assert len(children.strip().splitlines()) == 2 + len(born)


def test_a_gain_is_over_the_first_parent(small_archive: Sample) -> None:
    found = list(rows(small_archive.path))
    speeds = {one.child.kernel: one.child.speedup for one in found if one.child.speedup}
    gained = [one for one in found if one.gain is not None]
    assert gained
    for one in gained:
        assert one.child.speedup == pytest.approx(one.gain * (speeds[one.child.parents[0]] or 0.0))


def test_an_idea_has_its_place_in_the_authors_list() -> None:
    connection = sqlite3.connect(":memory:")
    key = "run text, generation int, island int, slot int, number int"
    connection.execute(f"create table questions ({key}, stage text)")
    connection.execute(f"create table answers ({key}, text text)")
    connection.execute("insert into questions values ('r', 1, 0, 0, 1, 'IDEA'), ('r', 1, 0, 0, 2, 'CODE')")
    answers = ('Here they are:\n```json\n[{"title": "A"}, {"title": "B"}]\n```', "[code]")
    connection.executemany("insert into answers values ('r', 1, 0, 0, ?, ?)", enumerate(answers, 1))
    assert proposed(connection) == {(1, 0): ["A", "B"]}
