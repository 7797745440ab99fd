"""Files are brought up to date; files of others and of the future are refused with a remedy."""

import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kbevolve import __version__
from kbevolve.archive import schema
from kbevolve.archive.parts import changed
from kbevolve.archive.records import Comparison, Trait
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import ArchiveError
from tests.small_archive import confirmation


def _number_column(db: Any) -> None:
    db.table("runs").add_column("owner", str)


def _broken(db: Any) -> None:
    db.table("runs").add_column("half", str)
    raise ZeroDivisionError


def columns(path: Path) -> set[str]:
    connection = sqlite3.connect(path)
    found = {name for (name,) in connection.execute("select name from pragma_table_info('runs')")}
    connection.close()
    return found


def test_what_a_file_went_through_is_recorded(small_archive: Any) -> None:
    connection = sqlite3.connect(small_archive.path)
    migrations = connection.execute("select number, name, kbevolve from migrations").fetchall()
    assert migrations[:5] == [
        (1, "first_tables", __version__),
        (2, "confirmations", __version__),
        (3, "phases", __version__),
        (4, "closings", __version__),
        (5, "sittings", __version__),
    ]
    assert len(migrations) == len(schema.MIGRATIONS)
    assert connection.execute("pragma journal_mode").fetchone() == ("wal",)
    assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
    assert connection.execute("pragma foreign_key_check").fetchall() == []
    connection.close()


def test_an_older_file_is_brought_up_to_date(small_archive: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, _number_column))
    with Archive(small_archive.path, create=False) as archive:
        assert archive.runs.get() == small_archive.run
        assert archive.runs.births(small_archive.run.id) == list(small_archive.births)
    assert "owner" in columns(small_archive.path)


def test_a_file_of_the_first_format_keeps_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written in SQL as the first version did, not by today's code: its columns are what such a file has."""
    path = tmp_path / "old.db"
    old_archive(path, 1, monkeypatch)
    connection = sqlite3.connect(path)
    for statement in (
        "insert into problems values ('p', 'L1/x', 'text', 'x.py', '{}', 'x', '2026')",
        "insert into runs values (1, 'r', 'L1/x', 'p', 'cpu/x', 0, '{}', '{}', '2026')",
        "insert into kernels values ('k', 'CPP', 'class ModelNew: ...')",
        "insert into births values (1, 'r', 0, 0, 0, 'SEED', 'BORN', '[]', 'k', null, '', null, null, '', 0, 0, 0, '')",
        "insert into evaluations values (7, 'k', 'p', 'cpu/x', 'fp32', 'CORRECT', '', 'fp32', 1e-6, 2e-6, 1, 1.0, 2.0,"
        " 2.0, 1.9, 2.1, '[\"x\"]', 0.1, 0.2, '2026')",
        "insert into blocks values (7, 0, 'child', 0, '[1.0, 1.5]')",
    ):
        connection.execute(statement)
    connection.commit()
    connection.close()
    with Archive(path, create=False) as archive:
        (found,) = archive.kernels.evaluations("k")
        assert (
            found.accuracy.worst_tile,
            found.timing.comparison,
            found.timing.speedup_best,
            found.timing.best_baseline,
        ) == (None,) * 4
        assert (found.execution.sandbox, found.profile) == ("", None)
        assert (found.execution.started_at, found.execution.phases, found.execution.device_instance) == (0.0, {}, "")
        assert (found.timing.speedup, found.tags, found.blocks[0].times_ms) == (2.0, ("x",), (1.0, 1.5))
        (summary,) = archive.runs.summaries()
        assert (summary.best_kernel, summary.best_speedup, summary.champion) == ("k", 2.0, None)
        archive.add_contest([confirmation("r", "k")])
        assert archive.runs.summary(archive.runs.get("r")).best_speedup == confirmation("r", "k").speedup
    connection = sqlite3.connect(path)
    assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
    with pytest.raises(sqlite3.IntegrityError, match="insert-only"):
        connection.execute("update evaluations set sandbox = 'none'")
    connection.close()


#: Columns that had other names before the tenth format.
OLD_NAMES = {
    "form": "canonical_hash", "written": "proposed_kernel", "author": "model_alias", "code": "binary_hash",
    "same_as": "identical_to", "place": "device_instance", "began": "started_at", "standing": "comparison",
}  # fmt: skip


def old_archive(path: Path, formats: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty file as a kbevolve of so many formats made it."""
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:formats])
        Archive(path).close()


def fill(path: Path, newer: Path) -> None:
    """Give a file of an older format the rows of today's, as far as it has columns for them."""
    connection = sqlite3.connect(path)
    connection.execute("attach ? as newer", (str(newer),))
    for table in ("problems", "runs", "kernels", "texts", "ideas", "births", "evaluations", "blocks"):
        names = [name for (name,) in connection.execute("select name from pragma_table_info(?, 'main')", (table,))]
        values = ", ".join(OLD_NAMES.get(name, name) for name in names)
        connection.execute(f"insert into main.{table} ({', '.join(names)}) select {values} from newer.{table}")
    connection.commit()
    connection.close()


def test_a_file_of_the_second_format_gets_phases(small_archive: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = small_archive.path.with_name("second.db")
    old_archive(path, 2, monkeypatch)
    fill(path, small_archive.path)
    with Archive(path, create=False) as archive:
        old = archive.runs.evaluations(small_archive.run.id)
        assert {one.execution.started_at for one in old.values()} == {0.0}
        assert all(one.execution.phases == {} for one in old.values())
        assert old == {
            name: changed(one, blocks=(), started_at=0.0, phases={}, device_instance="")
            for name, one in small_archive.evaluations.items()
        }
        newer = changed(
            next(iter(old.values())),
            started_at=1.7e9 + 1 / 3,
            phases={"device wait": 0.1, "a later phase": 2.5},
            device_instance="node7/cuda:1",
        )
        archive.add_evaluation(newer)
        assert archive.kernels.evaluations(newer.kernel)[-1] == newer


def test_a_file_of_the_eighth_format_gets_compiled_code(small_archive: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = small_archive.path.with_name("eighth.db")
    old_archive(path, 8, monkeypatch)
    fill(path, small_archive.path)
    with Archive(path, create=False) as archive:
        old = archive.runs.evaluations(small_archive.run.id)
        assert {(one.compiled.traits, one.compiled.binary_hash, one.compiled.identical_to) for one in old.values()} == {
            (None, "", None)
        }
        first, second = list(old.values())[:2]
        newer = changed(
            first, traits=(Trait.ATOMICS, Trait.MATRIX_UNITS), binary_hash="c0de", identical_to=second.kernel
        )
        archive.add_evaluation(newer)
        assert archive.kernels.evaluations(newer.kernel)[-1] == newer


def test_a_file_of_the_ninth_format_gets_the_new_names(small_archive: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path, run = small_archive.path.with_name("ninth.db"), small_archive.run.id
    old_archive(path, 9, monkeypatch)
    fill(path, small_archive.path)
    words = {"left-work": "pending-work", "left-processes": "leaked-processes", "untold-time": "unreported-time"}
    connection = sqlite3.connect(path)
    kernel = small_archive.best
    phases = '{"gate": 1, "read": 2, "end": 3, "room": 4}'
    connection.execute(
        "insert into evaluations (kernel, problem, device, precision, verdict, message, tags, build_seconds, seconds,"
        " at, phases, began, place, same_as, standing) values"
        " (?, ?, 'd', 'fp32', 'CORRECT', '', ?, 0, 1, '', ?, 5, 'n/cuda:1', null, 'TIE')",
        (kernel, small_archive.run.problem, json.dumps([*words, "flags"]), phases),
    )
    birth = "insert into births (number, run, generation, island, slot, operator, state, parents, note, model,"
    birth += " prompt_tokens, completion_tokens, seconds, at, written, form, author) values"
    for number, state in enumerate(("BORN", "FAMILIAR", "DUPLICATE"), start=1000):
        values = (number, run, number, state, kernel)
        connection.execute(f"{birth} (?, ?, ?, 0, 0, 'TUNE', ?, '[]', '', '', 0, 0, 0, '', ?, 'f', 'alias')", values)
    connection.execute("insert into sittings values (1, ?, '2026-01-01T00:00:00', '2026-01-01T00:01:00')", (run,))
    connection.execute("insert into legacies values (?, '{}', '')", (run,))
    connection.execute("insert into closings values (?, 3, '')", (run,))
    connection.commit()
    connection.close()
    with Archive(path, create=False) as archive:
        births = archive.runs.births(run)
        assert births[:-3] == list(small_archive.births)
        assert [birth.state.name for birth in births[-3:]] == ["CREATED", "NEAR_DUPLICATE", "DUPLICATE"]
        assert {(one.proposed_kernel, one.canonical_hash, one.model_alias) for one in births[-3:]} == {
            (kernel, "f", "alias")
        }
        found = archive.kernels.evaluations(kernel)[-1]
        assert found.tags == (*words.values(), "flags")
        assert found.execution.phases == {"device wait": 1, "lint": 2, "cleanup": 3, "memory wait": 4}
        assert (found.execution.started_at, found.execution.device_instance, found.timing.comparison) == (
            5,
            "n/cuda:1",
            Comparison.TIE,
        )
        assert (archive.runs.wall_seconds(run), archive.runs.transfer(run)) == (60, "{}")
        assert archive.run_view(small_archive.run).last_ended() == 3
    connection = sqlite3.connect(path)
    assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
    assert connection.execute("pragma foreign_key_check").fetchall() == []
    for table in ("births", "evaluations", "sessions", "transfers", "generation_ends"):
        column = connection.execute(f"select name from pragma_table_info('{table}')").fetchone()[0]
        for change in (f"delete from {table}", f"update {table} set {column} = {column}"):
            with pytest.raises(sqlite3.IntegrityError, match="insert-only"):
                connection.execute(change)
    connection.close()


def test_a_migration_that_fails_leaves_the_file_as_it_was(small_archive: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, _number_column, _broken))
        with pytest.raises(ZeroDivisionError):
            Archive(small_archive.path)
    assert not {"owner", "half"} & columns(small_archive.path)
    with Archive(small_archive.path) as archive:
        assert archive.runs.get() == small_archive.run


def test_a_file_from_a_newer_version_names_both_and_the_remedy(small_archive: Any) -> None:
    connection = sqlite3.connect(small_archive.path)
    later = len(schema.MIGRATIONS) + 1
    connection.execute("insert into migrations values (?, 'later', '9.8.7', '2030-01-01')", (later,))
    connection.commit()
    connection.close()
    before = small_archive.path.read_bytes()
    with pytest.raises(ArchiveError) as error:
        Archive(small_archive.path)
    message = str(error.value)
    assert f"format {later}, written by kbevolve 9.8.7" in message
    assert f"this is kbevolve {__version__}, which knows formats up to {later - 1}" in message
    assert "pip install --upgrade kbevolve" in message
    assert small_archive.path.read_bytes() == before


def test_an_sqlite_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "photos.db"
    connection = sqlite3.connect(path)
    connection.execute("create table photos (name)")
    connection.commit()
    connection.close()
    with pytest.raises(ArchiveError, match="SQLite file of something else"):
        Archive(path)
    connection = sqlite3.connect(path)
    assert connection.execute("select name from sqlite_master").fetchall() == [("photos",)]
    connection.close()


def test_an_up_to_date_file_opens_without_sqlite_utils(small_archive: Any) -> None:
    program = (
        "import sys; from kbevolve.archive.store import Archive; Archive(sys.argv[1], create=False).runs.summaries(); "
        "print(sorted({'sqlite_utils', 'numpy', 'torch', 'pydantic'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, small_archive.path], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_many_processes_may_make_the_same_file(tmp_path: Path) -> None:
    program = "import sys; from kbevolve.archive.store import Archive; sys.stdin.read(); Archive(sys.argv[1])"
    path = tmp_path / "kbevolve.db"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, path], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    # They all wait for their standard input to close, and then open the file at once.
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
    for process in processes:
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, "")
    connection = sqlite3.connect(path)
    assert connection.execute("select count(*) from migrations").fetchone() == (len(schema.MIGRATIONS),)
    connection.close()
