"""Runs as an archive holds them: which there are, which one is meant, and which have what in common with another."""

import json
from pathlib import Path

from kbevolve.archive import rows
from kbevolve.archive.connection import Connection
from kbevolve.archive.prefixes import by_prefix, only
from kbevolve.archive.records import Run
from kbevolve.configs.errors import ArchiveError, nearest


def precision_of(run: Run) -> str:
    """The precision that a run asks for, from its settings; "fp32", the setting's default, where they state none."""
    return str(json.loads(run.settings).get("evaluation", {}).get("precision", "fp32"))


def strategy_of(run: Run) -> str:
    """The strategy of a run, from its settings; "evolve", the setting's default, where they state none."""
    return str(json.loads(run.settings).get("search", {}).get("strategy", "evolve"))


def runs(connection: Connection) -> list[Run]:
    """All runs, newest first."""
    return [rows.run_from(row) for row in connection.rows("select * from runs order by number desc")]


def run(connection: Connection, which: str) -> Run:
    """A run by id, unique prefix, or "latest"."""
    if which == "latest":
        row = connection.row("select * from runs order by number desc limit 1")
        if row is None:
            raise ArchiveError(f"{connection.path} has no run yet; start one: kbevolve run --problem L1/matmul")
        return rows.run_from(row)
    found = by_prefix(connection, "runs", which)
    if not found:
        known = [row["id"] for row in connection.rows("select id from runs")]
        raise ArchiveError(f"no run {which!r} in {connection.path}. {nearest(which, known)}")
    return rows.run_from(connection.rows("select * from runs where id = ?", only(found, "runs", which))[0])


def latest_run_of(connection: Connection, problem_name: str) -> Run:
    """The newest run of a problem, by the name it was asked for or by its file."""
    file = Path(problem_name).expanduser()
    row = connection.row(
        "select runs.* from runs join problems on problems.id = runs.problem "
        "where runs.problem_name in (?, ?) or problems.path in (?, ?) order by runs.number desc limit 1",
        problem_name,
        file.stem if file.suffix == ".py" else problem_name,
        str(file),
        str(file.absolute()),
    )
    if row is None:
        known = {row["problem_name"] for row in connection.rows("select distinct problem_name from runs")}
        raise ArchiveError(f"no run of {problem_name} in {connection.path}. {nearest(problem_name, known)}")
    return rows.run_from(row)


def runs_like(connection: Connection, run: Run) -> list[Run]:
    """The runs on the same problem text and device, the oldest first."""
    found = connection.rows(
        "select * from runs where problem = ? and device = ? order by number", run.problem, run.device
    )
    return [rows.run_from(row) for row in found]


def runs_elsewhere(connection: Connection, run: Run, *, limit: int) -> list[Run]:
    """Earlier runs on other problems on the same device, the newest first."""
    found = connection.rows(
        "select * from runs where problem <> ? and device = ?"
        " and number < (select number from runs where id = ?) order by number desc limit ?",
        run.problem,
        run.device,
        run.id,
        limit,
    )
    return [rows.run_from(row) for row in found]


def transfer(connection: Connection, run_id: str) -> str | None:
    """What a run was given when it began, as it was written down; None when nothing was."""
    row = connection.row("select knowledge from transfers where run = ?", run_id)
    return None if row is None else str(row["knowledge"])
