"""The format of a file: an older file is migrated when it is opened, a newer one is refused.

A file records its migrations (`archive.migrations`) and the version of kbevolve that ran each.
"""

import sqlite3
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kbevolve import __version__
from kbevolve.archive.migrations import MIGRATIONS, READABLE, table
from kbevolve.configs.errors import ArchiveError

if TYPE_CHECKING:
    from kbevolve.archive.connection import Connection

#: "KBEV" in ASCII, in SQLite's header (PRAGMA application_id): distinguishes our files from other SQLite files.
APPLICATION_ID = 0x4B424556


def bring_up_to_date(connection: "Connection", *, in_copy: bool = False) -> None:
    """Create or migrate the tables, with `in_copy` in a copy in memory; a file that is up to date is only read.

    With `in_copy` a file that can be read as it is stays the file itself, which a reader then follows.

    Raises:
        ArchiveError: the file is from a newer kbevolve, or is an SQLite file of something else.
    """
    found = _format(connection)
    if found == len(MIGRATIONS) or (in_copy and found >= READABLE):
        return
    if in_copy:
        connection.copy_to_memory()
    with connection.transaction():
        # Read again under the lock: another process may have created the tables meanwhile.
        done = _format(connection)
        if done < len(MIGRATIONS):
            _apply(connection.sqlite, done)


def _format(connection: "Connection") -> int:
    """Number of migrations that were applied to the file; 0 for an empty file."""
    tables = connection.row("select count(*) from sqlite_master")
    if tables is None or tables[0] == 0:
        return 0
    owner = connection.row("pragma application_id")
    if owner is None or owner[0] != APPLICATION_ID:
        raise ArchiveError(
            f"{connection.path} is an SQLite file of something else; --archive wants one that kbevolve made, "
            "or a name not taken yet"
        )
    newest = connection.row("select number, kbevolve from migrations order by number desc limit 1")
    if newest is None:
        return 0
    if newest["number"] > len(MIGRATIONS):
        raise ArchiveError(
            f"{connection.path} has format {newest['number']}, written by kbevolve {newest['kbevolve']}; this is "
            f"kbevolve {__version__}, which knows formats up to {len(MIGRATIONS)}; upgrade it "
            "(pip install --upgrade kbevolve), or name another --archive"
        )
    return int(newest["number"])


def _apply(sqlite: sqlite3.Connection, done: int) -> None:
    # Imported here: it imports numpy, 75 ms that a file which is up to date does not need.
    from sqlite_utils import Database

    db = Database(sqlite, recursive_triggers=False, execute_plugins=False)
    if done == 0:
        db.execute(f"pragma application_id = {APPLICATION_ID}")
        table(db, "migrations", {"number": int, "name": str, "kbevolve": str, "at": str})
    for number, migration in enumerate(MIGRATIONS[done:], start=done + 1):
        migration(db)
        db.execute(
            "insert into migrations (number, name, kbevolve, at) values (?, ?, ?, ?)",
            (number, migration.__name__.strip("_"), __version__, datetime.now(UTC).isoformat(timespec="seconds")),
        )
