"""Wall time of a run: sessions with an end, killed sessions, and pauses."""

import sqlite3
from pathlib import Path

import pytest

from kbevolve.archive import schema, store
from kbevolve.archive.records import Birth, BirthState, Operator, StopReason
from kbevolve.archive.store import Archive
from tests.evolve.doubles import KnownEvaluator, kernel, open_run, problem, settings


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The minute of an hour that the archive takes for now; set ``clock[0]``."""
    minute = [0]
    monkeypatch.setattr(store, "now", lambda: f"2026-11-21T08:{minute[0]:02}:00.000+00:00")
    return minute


def birth_of(run_id: str) -> Birth:
    return Birth(
        run=run_id, generation=0, island=0, slot=0, operator=Operator.SEED, state=BirthState.CREATED, kernel=kernel().id
    )


def test_sessions_add_up_without_the_pauses(clock: list[int]) -> None:
    archive = Archive(":memory:")
    run, other = (open_run(archive, settings(), name) for name in ("one", "two"))
    assert archive.runs.wall_seconds(run.id) == 0
    for begins, ends in ((0, 5), (20, 22)):
        clock[0] = begins
        began = archive.start_session(run.id)
        clock[0] = ends
        archive.end_session(run.id, began)
    assert archive.runs.wall_seconds(run.id) == 7 * 60
    assert archive.runs.wall_seconds(other.id) == 0


def test_a_killed_session_lasted_up_to_its_last_fact(clock: list[int]) -> None:
    archive = Archive(":memory:")
    run, other = (open_run(archive, settings(), name) for name in ("one", "two"))
    archive.start_session(run.id)
    clock[0] = 3
    archive.add_generation_end(run.id, 0)
    clock[0] = 9
    archive.add_generation_end(other.id, 0)
    assert archive.runs.wall_seconds(run.id) == 3 * 60, "facts of another run are none of this one"
    clock[0] = 30
    archive.start_session(run.id)
    assert archive.runs.wall_seconds(run.id) == 3 * 60
    clock[0] = 40
    archive.add_stop(run.id, StopReason.INTERRUPTED)
    assert archive.runs.wall_seconds(run.id) == (3 + 10) * 60


def test_an_evaluation_is_a_fact_of_the_session(clock: list[int]) -> None:
    archive = Archive(":memory:")
    run = open_run(archive, settings())
    archive.start_session(run.id)
    clock[0] = 1
    archive.add_birth(birth_of(run.id), kernel=kernel())
    clock[0] = 4
    archive.add_evaluation(KnownEvaluator().evaluate(problem(), kernel()))
    assert archive.runs.wall_seconds(run.id) == 4 * 60


def test_a_file_of_the_fourth_format_gets_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "old.db"
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:4])
        with Archive(path) as archive:
            run = open_run(archive, settings())
    # In SQL, as the fourth version did: its births have fewer columns than today's.
    connection = sqlite3.connect(path)
    connection.execute("insert into closings values (?, 0, '')", (run.id,))
    connection.execute("insert into kernels values (?, 'CPP', ?)", (kernel().id, kernel().source))
    connection.execute(
        "insert into births values (1, ?, 0, 0, 0, 'SEED', 'BORN', '[]', ?, null, '', null, null, '', 0, 0, 0, '')",
        (run.id, kernel().id),
    )
    connection.commit()
    connection.close()
    with Archive(path, create=False) as archive:
        assert archive.runs.wall_seconds(run.id) == 0, "its duration was not recorded"
        assert archive.run_view(run).last_ended() == 0
        (birth,) = archive.runs.births(run.id)
        assert (birth.kernel, birth.model_alias) == (kernel().id, "")
        archive.end_session(run.id, archive.start_session(run.id))
        assert archive.runs.wall_seconds(run.id) < 5
    connection = sqlite3.connect(path)
    assert connection.execute("pragma foreign_key_check").fetchall() == []
    with pytest.raises(sqlite3.IntegrityError, match="insert-only"):
        connection.execute("update sessions set ended_at = started_at")
    connection.close()
