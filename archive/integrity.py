"""Whether an archive is whole: the file, its references, its lineages, its sources. It reads, and changes nothing."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from kbevolve.archive.connection import Connection
from kbevolve.archive.identity import digest, normalise

#: Cases of one kind that a finding names.
_SHOWN = 3

_DAMAGED = "save what can be read: sqlite3 FILE .recover | sqlite3 saved.db"
_CHANGED = "another program changed the file: take an earlier copy, or remove the runs: kbevolve archive rm-run RUN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One kind of damage."""

    #: What was found, in words.
    what: str
    count: int
    #: The first few cases.
    cases: tuple[str, ...]
    #: What to do about it.
    remedy: str


def check(connection: Connection) -> list[Finding]:
    """Every kind of damage that is found; empty for a whole archive.

    Raises:
        ArchiveError: SQLite cannot read the file at all.
    """
    found = [
        ("Pages or indices that SQLite calls damaged", _damage(connection), _DAMAGED),
        ("References to rows that are missing", _dangling(connection), _CHANGED),
        ("Tables whose rows may be changed", _changeable(connection), _CHANGED),
        ("Kernels whose source does not give their id", _altered(connection), _CHANGED),
        ("Attempts whose parents are no list of kernels", _unreadable(connection), _CHANGED),
        ("Parents that are no kernel of the archive", _orphans(connection), _CHANGED),
        ("Kernels that are their own ancestors", _circles(connection), _CHANGED),
    ]
    return [
        Finding(what=what, count=len(cases), cases=tuple(cases[:_SHOWN]), remedy=remedy)
        for what, cases, remedy in found
        if cases
    ]


def _damage(connection: Connection) -> list[str]:
    return [row[0] for row in connection.rows("pragma integrity_check") if row[0] != "ok"]


def _dangling(connection: Connection) -> list[str]:
    found = connection.rows("pragma foreign_key_check")
    return [f"{row['table']}, row {row['rowid']}: no such row in {row['parent']}" for row in found]


def _changeable(connection: Connection) -> list[str]:
    """Tables without the triggers that make them insert-only."""
    names = connection.rows("select name, type from sqlite_master where type in ('table', 'trigger')")
    triggers = {row["name"] for row in names if row["type"] == "trigger"}
    tables = [row["name"] for row in names if row["type"] == "table" and not row["name"].startswith("sqlite_")]
    return [name for name in tables if not {f"{name}_no_update", f"{name}_no_delete"} <= triggers]


def _altered(connection: Connection) -> list[str]:
    kernels = connection.each("select id, source from kernels")
    return [row["id"] for row in kernels if digest(normalise(row["source"])) != row["id"]]


def _unreadable(connection: Connection) -> list[str]:
    return [birth for birth, parents in _parents(connection) if parents is None]


def _orphans(connection: Connection) -> list[str]:
    kernels = {row["id"] for row in connection.each("select id from kernels")}
    return [
        f"{parent} of {birth}"
        for birth, parents in _parents(connection)
        for parent in parents or ()
        if parent not in kernels
    ]


def _circles(connection: Connection) -> list[str]:
    """A kernel of each circle in the lineage of a run, which is made of the first births of its kernels."""
    lineages: dict[str, dict[str, Sequence[str]]] = {}
    births = connection.each("select run, kernel, parents from births where kernel is not null order by number")
    for row in births:
        lineages.setdefault(row["run"], {}).setdefault(row["kernel"], _list_of(row["parents"]) or ())
    return [f"{kernel} in {run}" for run, lineage in lineages.items() for kernel in _circle_in(lineage)]


def _circle_in(lineage: Mapping[str, Sequence[str]]) -> Iterator[str]:
    left = dict(lineage)
    while left:
        try:
            TopologicalSorter(left).prepare()
            return
        except CycleError as error:
            circle = error.args[1]
            yield circle[0]
            for kernel in circle:
                left.pop(kernel, None)


def _parents(connection: Connection) -> Iterator[tuple[str, Sequence[str] | None]]:
    """Each birth that has parents, with its parents; None where they are no list of names."""
    for row in connection.each("select run, generation, island, slot, parents from births where parents <> '[]'"):
        yield f"{row['run']}/g{row['generation']}/i{row['island']}/s{row['slot']}", _list_of(row["parents"])


def _list_of(parents: str) -> Sequence[str] | None:
    try:
        found = json.loads(parents)
    except ValueError:
        return None
    return found if isinstance(found, list) and all(isinstance(one, str) for one in found) else None
