"""Full-text search over ideas and kernels, by SQLite's FTS5.

The index is a temporary table of the connection that searches: the archive may be read-only, and a search that writes
kernels does not pay for an index that it never uses. It is built at the first search and then follows the archive:
rows are only ever added, so each search indexes those beyond the last. It keeps no copy of the texts.
"""

import re
import threading
from collections.abc import Iterator
from typing import NamedTuple

from kbevolve.archive.connection import Connection

#: Table -> the title of a row and its text.
_SOURCES = {"ideas": ("title", "mechanism || ' ' || technique || ' ' || bottleneck"), "kernels": ("''", "source")}
#: Characters of a kernel that are indexed.
_INDEXED = 200_000
#: Rows that are indexed at a time.
_BATCH = 100
_WORD = re.compile(r"\w+", re.ASCII)


class Hit(NamedTuple):
    """An idea or a kernel that has all words of a query."""

    #: "ideas" or "kernels", and its id there.
    table: str
    id: str
    #: The title of the idea, or the line of the kernel that holds the first word; "" for none.
    line: str
    #: The run of its first birth and the kernel of that birth; "" for none.
    run: str
    kernel: str


class SearchIndex:
    """A search over an open archive."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._seen = dict.fromkeys(_SOURCES, 0)
        for table in _SOURCES:
            # Words as they are in code: BLOCK_M is one word. Without positions the index is half as large.
            connection.rows(
                f"create virtual table temp.find_{table} using fts5(title, text, content='', detail=column,"
                " tokenize=\"unicode61 tokenchars '_'\")"
            )

    def update(self) -> None:
        """Index the rows that are new since the last time, in batches: other queries of the connection get between."""
        with self._lock:
            for table, (title, text) in _SOURCES.items():
                (newest,) = self._connection.rows(f"select coalesce(max(rowid), 0) as number from {table}")
                if newest["number"] < self._seen[table]:  # a run was removed
                    self._connection.rows(f"insert into temp.find_{table} (find_{table}) values ('delete-all')")
                    self._seen[table] = 0
                while (seen := self._seen[table]) < newest["number"]:
                    self._connection.rows(
                        f"insert into temp.find_{table} (rowid, title, text) select rowid, {title},"
                        f" substr({text}, 1, ?) from main.{table} where rowid > ? and rowid <= ?",
                        _INDEXED,
                        seen,
                        seen + _BATCH,
                    )
                    self._seen[table] = min(seen + _BATCH, newest["number"])

    def find(self, query: str, *, limit: int) -> tuple[Hit, ...]:
        """Ideas, then kernels, that hold every word of a query, the last one as a prefix; the best of each first.

        At most `limit` of each. None for a query without words.
        """
        words = _WORD.findall(query)
        if not words:
            return ()
        self.update()
        match = " ".join(f'"{word}"' for word in words) + "*"
        return tuple(hit for table in _SOURCES for hit in self._hits(table, match, words[0], limit))

    def _hits(self, table: str, match: str, first: str, limit: int) -> Iterator[Hit]:
        text = "title" if table == "ideas" else "source"
        column = "idea" if table == "ideas" else "kernel"
        found = self._connection.rows(
            f"select {table}.id, {table}.{text} as text, births.run, births.kernel"
            f" from (select rowid from temp.find_{table} where find_{table} match ? order by rank limit ?) as hits"
            f" join main.{table} on {table}.rowid = hits.rowid"
            f" left join births on births.number = (select min(number) from births where {column} = {table}.id)",
            match,
            limit,
        )
        for row in found:
            line = row["text"] if table == "ideas" else _line_with(row["text"], first)
            yield Hit(table, row["id"], line, row["run"] or "", row["kernel"] or "")


def _line_with(source: str, word: str) -> str:
    """The first line of a source that holds a word, at most 200 characters of it."""
    at = source.lower().find(word.lower())
    if at < 0:
        return ""
    begin = source.rfind("\n", 0, at) + 1
    # A long line begins with a whole word.
    start = begin if at - begin <= 80 else max(source.find(" ", at - 80, at) + 1, at - 80)
    line = source[start : start + 200].partition("\n")[0].strip()
    return line if start == begin else f"… {line}"
