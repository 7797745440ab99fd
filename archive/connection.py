"""One open SQLite file: opening, transactions, and error messages.

Three guarantees are kept here, and nowhere else:

* **No finished work is lost when the process is killed.** The file is in WAL mode with
  ``synchronous=NORMAL``: a commit has handed its pages to the operating system before it returns, and the system
  keeps them when the process dies (kill -9, out of memory, a crash). NORMAL skips the fsync at each commit: only a
  power cut can lose the last commits, and it cannot damage the file. An fsync would cost milliseconds a child.
* **Many processes may read while one writes.** Readers of a WAL file never wait; a second writer waits. A read-only
  connection writes nothing, not even in a directory that may not be written to.
* **A failure is one line with a remedy**, an `ArchiveError`.
"""

import contextlib
import operator
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from kbevolve.archive.identity import encodable
from kbevolve.configs.errors import ArchiveError

#: Seconds a writer waits for another one. A transaction takes about a millisecond: a wait this long means that another
#: process is stopped in the middle of a transaction.
BUSY_SECONDS = 30.0
#: Pause before the next request for WAL mode, which SQLite refuses at once while another process opens the file.
WAL_RETRY_SECONDS = 0.02

#: Remedies by the start of SQLite's symbolic error name.
_REMEDIES = (
    ("SQLITE_FULL", "the disk is full; make room, then `kbevolve resume` (what was finished is kept)"),
    ("SQLITE_IOERR", "the disk does not take it (full, over quota or failing); make room, then `kbevolve resume`"),
    (
        "SQLITE_READONLY",
        "it may not be written; copy it to a directory that you may write to, or name another --archive",
    ),
    ("SQLITE_CANTOPEN", "it cannot be opened for writing here; name a file in a directory you may write to: --archive"),
    ("SQLITE_PERM", "it may not be opened; check its permissions, or name another --archive"),
    ("SQLITE_BUSY", f"another process has held it for {BUSY_SECONDS:.0f} s; stop that one, or name another --archive"),
    ("SQLITE_LOCKED", "another process holds it; stop that one, or name another --archive"),
    ("SQLITE_NOTADB", "it is not an SQLite file; --archive wants a file that kbevolve made, or a name not taken yet"),
    ("SQLITE_CORRUPT", "the file is damaged; save what can be read: sqlite3 FILE .recover | sqlite3 saved.db"),
)


def now() -> str:
    """This moment, as the archive writes it: UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Connection:
    """An open SQLite file. Threads may share it: one statement or transaction at a time.

    With `read_only`, text that is not UTF-8, which another program wrote, is read with replacement characters.

    Raises:
        ArchiveError: the file is missing (and not to be made), cannot be opened, or is not SQLite's.
    """

    def __init__(self, path: Path | str, *, create: bool, read_only: bool = False) -> None:
        self.path = str(path)
        self._lock = threading.RLock()
        _check_path(self.path, create=create)
        with self.explained():
            #: The bare connection, for migrations.
            self.sqlite = _connect(_address(self.path, "ro" if read_only else "rwc" if create else "rw"))
            try:
                if read_only:
                    self._read_only()
                    return
                self.sqlite.row_factory = sqlite3.Row
                self._use_wal()
                self.sqlite.execute("pragma synchronous = normal")
                self.sqlite.execute("pragma foreign_keys = on")
            except BaseException:
                self.sqlite.close()
                raise

    def close(self) -> None:
        """Close the file. A later query of another thread is an error."""
        with self._lock:  # closing under another thread's statement would crash the process
            self.sqlite.close()

    def version(self) -> int:
        """A number that changes whenever another connection has written to the file."""
        return int(self.rows("pragma data_version")[0][0])

    def copy_to_memory(self) -> None:
        """Replace the file by a copy of what it holds now, which may be changed."""
        with self._lock, self.explained():
            copy = _connect("file::memory:")
            self.sqlite.backup(copy)
            copy.row_factory, copy.text_factory = self.sqlite.row_factory, self.sqlite.text_factory
            self.sqlite.close()
            self.sqlite = copy

    def rows(self, sql: str, *parameters: object) -> list[sqlite3.Row]:
        """All rows of a query."""
        with self._lock, self.explained():
            return self.sqlite.execute(sql, parameters).fetchall()

    def row(self, sql: str, *parameters: object) -> sqlite3.Row | None:
        """First row of a query, None when there is none."""
        return next(iter(self.rows(sql, *parameters)), None)

    def each(self, sql: str, *parameters: object) -> Iterator[sqlite3.Row]:
        """The rows of a query one by one, for tables that are larger than memory should hold."""
        with self._lock, self.explained():
            yield from self.sqlite.execute(sql, parameters)

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """All queries of the block see the file at one moment, while other processes write to it."""
        with self._lock, self.explained():
            self.sqlite.execute("begin")
            try:
                yield
            finally:
                self.sqlite.execute("rollback")

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """The block is one transaction.

        The lock is taken at the start (IMMEDIATE): SQLite refuses a transaction that reads first and needs the lock
        later at once when another one wrote in between.
        """
        with self._lock, self.explained():
            self.sqlite.execute("begin immediate")
            try:
                yield
                self.sqlite.execute("commit")
            except BaseException:
                # SQLite has rolled back by itself after a full disk; a second ROLLBACK would hide the first error.
                if self.sqlite.in_transaction:
                    self.sqlite.execute("rollback")
                raise

    def insert(self, table: str, row: Mapping[str, object], *, known: str = "") -> int:
        """Insert one row and return its number; with `known`, an existing row of that key stays."""
        columns = ", ".join(row)
        marks = ", ".join("?" * len(row))
        conflict = f" on conflict ({known}) do nothing" if known else ""
        sql = f"insert into {table} ({columns}) values ({marks}){conflict}"
        try:
            cursor = self.sqlite.execute(sql, tuple(row.values()))
        except UnicodeEncodeError:
            cursor = self.sqlite.execute(
                sql, tuple(encodable(value) if isinstance(value, str) else value for value in row.values())
            )
        return cursor.lastrowid or 0

    def insert_all(self, table: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Insert many rows of the same columns."""
        if rows:
            columns = ", ".join(rows[0])
            marks = ", ".join("?" * len(rows[0]))
            self.sqlite.executemany(
                f"insert into {table} ({columns}) values ({marks})", [tuple(row.values()) for row in rows]
            )

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Turn SQLite's errors into one line with a remedy; a violated constraint is raised as it is."""
        try:
            yield
        except sqlite3.IntegrityError:
            raise  # the caller knows which record it was
        except sqlite3.Error as error:
            raise ArchiveError(f"{self.path}: {_explain(error)}") from error

    def _read_only(self) -> None:
        """Prepare for reading: of any text, and where SQLite may not even make the file that readers of a WAL share."""
        try:
            self.sqlite.execute("select count(*) from sqlite_master").fetchall()
        except sqlite3.OperationalError as error:
            log = Path(f"{self.path}-wal")
            if not _name(error).startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY")) or (
                log.exists() and log.stat().st_size
            ):
                raise
            self.sqlite.close()
            # With no log beside it the file is complete, and in such a directory no process writes it.
            self.sqlite = _connect(f"{_address(self.path, 'ro')}&immutable=1")
        self.sqlite.row_factory = _readable_row
        self.sqlite.text_factory = _readable

    def _use_wal(self) -> None:
        """Switch the file to WAL; the mode is stored in the file."""
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                self.sqlite.execute("pragma journal_mode = wal")
                return
            except sqlite3.OperationalError as error:
                if not _name(error).startswith("SQLITE_BUSY") or time.monotonic() > deadline:
                    raise
                time.sleep(WAL_RETRY_SECONDS)


def _check_path(path: str, *, create: bool) -> None:
    """Refuse what SQLite would only call "unable to open database file"."""
    if path == ":memory:":
        return
    file = Path(path)
    try:
        is_there, is_directory, has_parent = file.exists(), file.is_dir(), file.parent.is_dir()
    except OSError as error:
        raise ArchiveError(f"{path}: {error.strerror}; name a file that you may reach: --archive") from None
    if is_directory:
        raise ArchiveError(f"{path} is a directory; --archive wants a file, e.g. {file / 'kbevolve.db'}")
    if not is_there and not create:
        raise ArchiveError(
            f"no archive at {path}; `kbevolve run --problem L1/matmul` makes one, --archive FILE names another"
        )
    if not has_parent:
        raise ArchiveError(f"{path}: there is no directory {file.parent}; make it first: mkdir -p {file.parent}")


def _address(path: str, mode: str) -> str:
    return "file::memory:" if path == ":memory:" else f"{Path(path).absolute().as_uri()}?mode={mode}"


def _connect(address: str) -> sqlite3.Connection:
    # `Connection._lock` keeps threads apart.
    return sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)


#: In C, because SQLite calls it for every text of every row.
_readable = operator.methodcaller("decode", "utf-8", "replace")


def _readable_row(cursor: sqlite3.Cursor, values: tuple[object, ...]) -> sqlite3.Row:
    """A row whose bytes are text: the archive has no column of bytes."""
    if bytes in map(type, values):
        values = tuple(_readable(value) if isinstance(value, bytes) else value for value in values)
    return sqlite3.Row(cursor, values)


def _name(error: sqlite3.Error) -> str:
    """SQLite's symbolic name, e.g. SQLITE_IOERR_WRITE; "" for errors of the Python module itself."""
    return str(getattr(error, "sqlite_errorname", ""))


def _explain(error: sqlite3.Error) -> str:
    name = _name(error)
    unknown = f"SQLite says: {error} ({name or type(error).__name__}); please report this with `--debug`"
    return next((remedy for start, remedy in _REMEDIES if name.startswith(start)), unknown)
