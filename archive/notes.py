"""Notes of people about runs and kernels. A word that begins with # is a tag."""

from collections.abc import Collection
from dataclasses import dataclass

from kbevolve.archive import rows
from kbevolve.archive.connection import Connection, now
from kbevolve.configs.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What a person wrote; never changed."""

    #: Id of a run or of a kernel.
    about: str
    text: str
    at: str

    @property
    def tags(self) -> frozenset[str]:
        """The words that begin with #, without it."""
        return frozenset(word[1:] for word in self.text.split() if word.startswith("#") and len(word) > 1)


class Notes:
    """The notes of an open archive."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, about: str, text: str) -> None:
        """Write a note about a run or a kernel, by its id.

        Raises:
            UsageError: it is empty.
        """
        flat = " ".join(text.split())
        if not flat:
            raise UsageError("the note is empty; leave the text out to read the notes")
        with self._connection.transaction():
            self._connection.insert("notes", {"about": about, "text": flat, "at": now()})

    def of(self, about: str) -> list[Note]:
        """The notes about a run or a kernel, the oldest first."""
        return [note for note in self.all() if note.about == about]

    def all(self) -> list[Note]:
        """All notes, the oldest first; none in a file of before that is only read."""
        if self._connection.row("select 1 from sqlite_master where name = 'notes'") is None:
            return []
        return rows.read(self._connection, Note, "select about, text, at from notes order by number")

    def tagged(self, tag: str) -> set[str]:
        """Ids of the runs and kernels with a tag, given with or without #."""
        return {note.about for note in self.all() if tag.removeprefix("#") in note.tags}


def copy_notes(target: Connection, source: Connection, about: Collection[str]) -> None:
    """Add notes of another archive about these runs and kernels, each once."""
    known = {(one.about, one.text, one.at) for one in Notes(target).all()}
    for one in Notes(source).all():
        if one.about in about and (one.about, one.text, one.at) not in known:
            target.insert("notes", {"about": one.about, "text": one.text, "at": one.at})
