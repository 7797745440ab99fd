"""Bring the runs of one archive into another: same kernel, same source; the same fact is there once.

The lists of a run only ever grow. Of two copies of a run, one is therefore the beginning of the other, and merging
appends what is missing. Copies that went on separately are refused: their children have the same names.
"""

import shlex
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kbevolve.archive.connection import Connection
from kbevolve.archive.identity import digest, normalise
from kbevolve.archive.notes import copy_notes
from kbevolve.configs.errors import ArchiveError

#: What a run writes in order, and what it writes once under a key.
_LISTS = ("births", "placements", "confirmations", "stops", "sessions")
_KEYED = ("transfers", "generation_ends", "questions", "answers", "replies")
#: What runs share, under keys that follow from the content.
_SHARED = {"texts": "id", "ideas": "id", "problems": "id", "devices": "fingerprint"}
#: Kernels that a run names. Parents are JSON, which another program may have written badly.
_NAMED = """
select kernel as id from births where run = ?1 union select proposed_kernel from births where run = ?1
union select value from births, json_each(iif(json_valid(parents), parents, '[]')) where run = ?1
union select kernel from placements where run = ?1
union select kernel from confirmations where run = ?1 union select rival from confirmations where run = ?1
"""


@dataclass(frozen=True, slots=True)
class Merged:
    """What was new here."""

    runs: int = 0
    attempts: int = 0
    kernels: int = 0
    evaluations: int = 0
    confirmations: int = 0

    def __bool__(self) -> bool:
        return any((self.runs, self.attempts, self.kernels, self.evaluations, self.confirmations))


def merge(target: Connection, source: Connection, runs: Collection[str] | None = None) -> Merged:
    """Add the facts of `source` to `target`, all of them or those of some runs, in one transaction.

    A card that is known here stays: the newest one is what a run reads.

    Raises:
        ArchiveError: a source does not give the id of its kernel, a run went on in both archives separately, or
            `source` is incomplete; `target` is then unchanged.
    """
    with source.snapshot():
        chosen = [row["id"] for row in source.rows("select id from runs order by number")]
        chosen = [run for run in chosen if runs is None or run in runs]
        kernels = _all(source, "kernels") if runs is None else _kernels_of(source, chosen)
        _check_sources(target, source, kernels)
        with _whole(source), target.transaction():
            before = _counts(target)
            for table, key in _SHARED.items():
                wanted = None if runs is None else _wanted(source, table, chosen, kernels)
                _add_shared(target, source, table, key, wanted)
            _add_shared(target, source, "kernels", "id", kernels)
            for run in chosen:
                _add_run(target, source, run)
            _add_evaluations(target, source, kernels)
            _add_cards(target, source)
            copy_notes(target, source, {*chosen, *kernels})
            after = _counts(target)
    return Merged(*(new - old for new, old in zip(after, before, strict=True)))


@contextmanager
def _whole(source: Connection) -> Iterator[None]:
    """A fact that names a missing one is the fault of the file that is read."""
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise ArchiveError(
            f"{source.path}: a fact names another that is missing ({error}); nothing was copied; "
            f"see: {_check_command(source)}"
        ) from error


def _check_command(source: Connection) -> str:
    return f"kbevolve archive check --archive {shlex.quote(source.path)}"


def _counts(connection: Connection) -> list[int]:
    tables = ("runs", "births", "kernels", "evaluations", "confirmations")
    return [connection.rows(f"select count(*) from {table}")[0][0] for table in tables]


def _all(source: Connection, table: str) -> set[str]:
    return {row["id"] for row in source.rows(f"select id from {table}")}


def _kernels_of(source: Connection, runs: Iterable[str]) -> set[str]:
    """The kernels that runs name, and those that lent them their verdicts."""
    found = {row["id"] for run in runs for row in source.rows(_NAMED, run)}
    waiting = list(found)
    lender = "select identical_to as id from evaluations where kernel = ? and identical_to is not null"
    while waiting:
        new = {row["id"] for row in source.rows(lender, waiting.pop())} - found
        found |= new
        waiting += new
    return found & _all(source, "kernels")


def _wanted(source: Connection, table: str, runs: Iterable[str], kernels: Iterable[str]) -> set[str]:
    """Keys of what runs and the evaluations of their kernels name in a shared table."""
    of_runs = {
        "texts": "select prompt as id from births where run = ?1 union select reply from births where run = ?1",
        "ideas": "select idea as id from births where run = ?",
        "problems": "select problem as id from runs where id = ?",
        "devices": "select device as id from runs where id = ?",
    }
    found = {row["id"] for run in runs for row in source.rows(of_runs[table], run)}
    if column := {"problems": "problem", "devices": "device"}.get(table):
        judged = f"select distinct {column} as id from evaluations where kernel = ?"
        found |= {row["id"] for kernel in kernels for row in source.rows(judged, kernel)}
    return found


def _check_sources(target: Connection, source: Connection, kernels: Collection[str]) -> None:
    known = _all(target, "kernels")
    for row in source.each("select id, source from kernels"):
        if row["id"] in kernels and row["id"] not in known and digest(normalise(row["source"])) != row["id"]:
            raise ArchiveError(
                f"{source.path}: the source of kernel {row['id']!r} does not give this id, so it was changed; "
                f"nothing was copied; see: {_check_command(source)}"
            )


def _add_shared(target: Connection, source: Connection, table: str, key: str, wanted: Collection[str] | None) -> None:
    for row in source.each(f"select * from {table}"):
        if wanted is None or row[key] in wanted:
            target.insert(table, dict(row), known=key)


def _add_run(target: Connection, source: Connection, run: str) -> None:
    where = "select * from {} where run = ?"
    (row,) = source.rows("select * from runs where id = ?", run)
    here = target.row("select * from runs where id = ?", run)
    if here is None:
        target.insert("runs", _unnumbered(row))
    elif _unnumbered(here) != _unnumbered(row):
        raise _separate(target, source, run)
    for table in _LISTS:
        theirs = source.rows(f"{where.format(table)} order by number", run)
        ours = target.rows(f"{where.format(table)} order by number", run)
        if any(_unnumbered(one) != _unnumbered(other) for one, other in zip(ours, theirs, strict=False)):
            raise _separate(target, source, run)
        for one in theirs[len(ours) :]:
            number = target.insert(table, _unnumbered(one))
            if table == "confirmations":
                _add_blocks(target, source, "confirmation", one["number"], number)
    for table in _KEYED:
        for one in source.rows(where.format(table), run):
            target.insert(table, dict(one), known=_key(target, table))


def _separate(target: Connection, source: Connection, run: str) -> ArchiveError:
    return ArchiveError(
        f"run {run} went on in {target.path} and in {source.path} separately; nothing was merged from the second; "
        f"remove it from one of them: kbevolve archive rm-run {run} --archive FILE"
    )


def _add_evaluations(target: Connection, source: Connection, kernels: Collection[str]) -> None:
    same = _same_row(target, "evaluations", ("kernel", "problem", "device", "precision"))
    for row in source.each("select * from evaluations order by number"):
        values = _unnumbered(row)
        if row["kernel"] in kernels and target.row(same, *values.values()) is None:
            number = target.insert("evaluations", values)
            _add_blocks(target, source, "evaluation", row["number"], number)


def _add_blocks(target: Connection, source: Connection, owner: str, old: int, new: int) -> None:
    table = "blocks" if owner == "evaluation" else "confirmation_blocks"
    found = source.rows(f"select * from {table} where {owner} = ? order by position", old)
    target.insert_all(table, [{**dict(row), owner: new} for row in found])


def _add_cards(target: Connection, source: Connection) -> None:
    known = "select 1 from cards where problem = ? and device = ? and precision = ?"
    here = _all(target, "problems")
    missing: dict[tuple[str, str, str], bool] = {}
    for row in source.rows("select * from cards order by number"):
        place = row["problem"], row["device"], row["precision"]
        if missing.setdefault(place, target.row(known, *place) is None) and row["problem"] in here:
            target.insert("cards", _unnumbered(row))


def _unnumbered(row: sqlite3.Row) -> dict[str, object]:
    """A row without its number, which each archive counts by itself."""
    return {name: row[name] for name in sorted(row.keys()) if name != "number"}


def _same_row(target: Connection, table: str, indexed: Collection[str]) -> str:
    """A query for an equal row, whose parameters are those of `_unnumbered`."""
    names = sorted(_columns(target, table, lambda row: row["name"] != "number"))
    return f"select 1 from {table} where " + " and ".join(
        f"{name} {'=' if name in indexed else 'is'} ?" for name in names
    )


def _key(target: Connection, table: str) -> str:
    return ", ".join(_columns(target, table, lambda row: row["pk"] > 0))


def _columns(target: Connection, table: str, chosen: Callable[[sqlite3.Row], bool]) -> list[str]:
    return [row["name"] for row in target.rows(f"pragma table_info({table})") if chosen(row)]
