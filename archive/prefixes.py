"""Kernels and runs by the beginning of their ids."""

from kbevolve.archive.connection import Connection
from kbevolve.configs.errors import ArchiveError

#: Sorts after every character of an id, so that ``id between 'ab' and 'ab~'`` are the ids that start with ``ab``.
_AFTER = "~"
#: How many ids a message lists when a prefix fits several.
_SHOWN = 4
#: How many ids a shell proposes.
_PROPOSED = 100


def by_prefix(connection: Connection, table: str, prefix: str) -> list[str]:
    """The id itself, or those with this prefix; one more than is shown."""
    found = [
        str(row["id"])
        for row in connection.rows(
            f"select id from {table} where id between ? and ? order by id limit ?", prefix, prefix + _AFTER, _SHOWN + 1
        )
    ]
    return [prefix] if prefix in found else found


def starting_with(connection: Connection, table: str, prefix: str) -> list[str]:
    """The ids with this prefix, the newest first, at most as many as a shell can propose."""
    sql = f"select id from {table} where id between ? and ? order by rowid desc limit ?"
    return [str(row["id"]) for row in connection.rows(sql, prefix, prefix + _AFTER, _PROPOSED)]


def only(found: list[str], nouns: str, which: str) -> str:
    """The only one.

    Raises:
        ArchiveError: there are several.
    """
    if len(found) > 1:
        raise ArchiveError(ambiguous(found, nouns, which))
    return found[0]


def ambiguous(found: list[str], nouns: str, which: str) -> str:
    """The message about a prefix that several ids have."""
    shown = ", ".join(found[:_SHOWN]) + (", …" if len(found) > _SHOWN else "")
    count = f"more than {_SHOWN}" if len(found) > _SHOWN else str(len(found))
    return f"{count} {nouns} start with {which!r}: {shown}; give more of the id"
