"""Notes of people: written once, found by tag, carried by merge and pack, gone with what they are about."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.store import Archive
from kbevolve.configs.errors import UsageError


def test_notes_are_kept_in_order_and_have_tags(small_archive: Any) -> None:
    run = small_archive.run.id
    with Archive(small_archive.path) as archive:
        archive.notes.add(run, "quiet machine,\n#baseline #h200")
        archive.notes.add(small_archive.best, "to ship # soon")
        archive.notes.add(run, "again")
        assert [note.text for note in archive.notes.of(run)] == ["quiet machine, #baseline #h200", "again"]
        assert archive.notes.of(run)[0].tags == {"baseline", "h200"}
        assert archive.notes.tagged("#baseline") == archive.notes.tagged("h200") == {run}
        assert archive.notes.tagged("soon") == set()
        with pytest.raises(UsageError, match="empty"):
            archive.notes.add(run, " \n")


def test_they_go_along_and_are_there_once(small_archive: Any, tmp_path: Path) -> None:
    with Archive(small_archive.path) as archive, Archive(tmp_path / "other.db") as other:
        archive.notes.add(small_archive.run.id, "#baseline")
        archive.notes.add(small_archive.best, "to ship")
        for _ in range(2):
            other.merge(archive)
        assert other.notes.all() == archive.notes.all()
        other.remove_run(small_archive.run)
        assert other.notes.all() == []


def test_a_file_of_before_has_none(small_archive: Any) -> None:
    file = sqlite3.connect(small_archive.path)
    with file:
        file.execute("drop table notes")
        file.execute("drop trigger migrations_no_delete")
        file.execute("delete from migrations where name = 'notes'")
    file.close()
    with Archive(small_archive.path, read_only=True) as archive:
        assert archive.notes.all() == []
    with Archive(small_archive.path) as archive:
        archive.notes.add(small_archive.run.id, "now it has")


def test_the_commands_write_and_show_them(kbevolve: Any, small_archive: Any, make_archive: Any) -> None:
    make_archive(run_id="other", seed=2, generations=1)
    where = ("--archive", small_archive.path)
    run = small_archive.run.id
    assert kbevolve("archive", "note", run, "quiet <machine> #baseline", *where).out.endswith(
        "  quiet <machine> #baseline\n"
    )
    kbevolve("archive", "note", small_archive.best, "to ship", *where)
    found = json.loads(kbevolve("archive", "note", run, "--json", *where).out)
    assert [(one["about"], one["text"]) for one in found] == [(run, "quiet <machine> #baseline")]
    assert "quiet <machine> #baseline" in kbevolve("archive", "show", run, *where).out
    assert "to ship" in kbevolve("archive", "show", small_archive.best, *where).out
    lines = kbevolve("archive", "ls", "--tag", "baseline", *where).out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [run]
    none = kbevolve("archive", "ls", "--tag", "h100", *where)
    assert (none.code, "archive note RUN '#h100'" in none.err) == (1, True)
    assert kbevolve("archive", "ls", run, "--tag", "baseline", *where).code == 2
    assert kbevolve("archive", "note", run, "", *where).code == 2
