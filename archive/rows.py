"""Records as rows and back, by the types of their fields; exact in both directions.

A column has the name of its field. Enums are stored by member name (numbers and sentences may change between versions);
tuples, mappings and records as JSON, whose numbers Python reads back exactly.
"""

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import cache, partial
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin

from kbevolve.archive.connection import Connection
from kbevolve.archive.identity import digest
from kbevolve.archive.parts import flat, grouped, types_of
from kbevolve.archive.records import Birth, Idea, Measurement, ProblemCard
from kbevolve.configs.errors import ArchiveError
from kbevolve.configs.problem import Problem

Row = dict[str, Any]
Record = TypeVar("Record")
Member = TypeVar("Member", bound=Enum)

#: The field whose rows are in a table of their own (`block_rows`).
_BLOCKS = "blocks"


def to_row(record: Any) -> Row:
    """The row of a record, without its blocks."""
    row = {name: _stored(value) for name, value in flat(record).items() if name != _BLOCKS}
    return {"id": record.id} | row if isinstance(record, Idea | Problem) else row


def from_row(kind: type[Record], row: sqlite3.Row | Mapping[str, Any], **given: object) -> Record:
    """The record of a row; `given` holds the values of fields that the row lacks."""
    hashable: Any = kind
    values = {name: row[name] for name in columns(hashable)}
    for name, read in _readers(hashable):
        if values[name] is not None:
            values[name] = read(values[name])
    return grouped(kind, **values, **given)


def read(connection: Connection, kind: type[Record], sql: str, *parameters: object) -> list[Record]:
    """The records that a query finds."""
    return [from_row(kind, row) for row in connection.rows(sql, *parameters)]


def read_first(connection: Connection, kind: type[Record], sql: str, *parameters: object) -> Record | None:
    """The first record that a query finds, None when there is none."""
    row = connection.row(sql, *parameters)
    return None if row is None else from_row(kind, row)


@cache
def columns(kind: Any) -> tuple[str, ...]:
    """The columns of a record."""
    return tuple(name for name in types_of(kind) if name != _BLOCKS)


def birth_row(birth: Birth) -> Row:
    """Row of `births`; prompt and reply are ids of `texts` (`birth_texts`), None for none."""
    return to_row(birth) | {
        "prompt": digest(birth.prompt) if birth.prompt else None,
        "reply": digest(birth.reply) if birth.reply else None,
    }


def birth_texts(birth: Birth) -> list[Row]:
    """Rows of `texts` that a birth needs."""
    return [{"id": digest(text), "text": text} for text in (birth.prompt, birth.reply) if text]


def block_rows(blocks: Sequence[Measurement], **owner: int) -> list[Row]:
    """Rows of `blocks` or `confirmation_blocks`; `owner` names the column and the number it was stored under."""
    return [{**owner, "position": position, **to_row(block)} for position, block in enumerate(blocks)]


def card_row(card: ProblemCard) -> Row:
    """Row of `cards`: what it is looked up by, and the whole as JSON."""
    fields = _plain(card)
    keys = {name: fields[name] for name in ("problem", "device", "precision")}
    return keys | {"card": json.dumps(fields, sort_keys=True)}


def card_from(row: sqlite3.Row) -> ProblemCard:
    """The card of a row."""
    card: ProblemCard = _revived(ProblemCard, json.loads(row["card"]))
    return card


@cache  # an enum looks a name up ten times as slowly
def member(kind: type[Member], name: str) -> Member:
    """The enum's member of this name.

    Raises:
        ArchiveError: there is none; the file was written by a kbevolve that knows more.
    """
    try:
        return kind[name]
    except KeyError:
        raise ArchiveError(
            f"the archive holds the {kind.__name__} {name!r}, which this kbevolve does not know; "
            "a newer one wrote it: pip install --upgrade kbevolve"
        ) from None


def _stored(value: Any) -> Any:
    """A value as SQLite keeps it."""
    if type(value) in (NoneType, str, int, float, bool):
        return value
    if isinstance(value, Enum):
        return value.name
    return str(value) if isinstance(value, Path) else json.dumps(_plain(value))


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return {name: _plain(one) for name, one in flat(value).items()} if hasattr(value, "__dataclass_fields__") else value


@cache
def _readers(kind: Any) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    """The columns of a record whose values are stored in another form, and what reads each."""
    types = types_of(kind)
    return tuple((name, read) for name in columns(kind) if (read := _reader(types[name])) is not None)


def _reader(kind: Any) -> Callable[[Any], Any] | None:
    kind = _present(kind)
    if kind in (bool, Path):
        return partial(kind)
    if kind in (str, int, float):
        return None
    if isinstance(kind, type) and issubclass(kind, Enum):
        return partial(member, kind)
    return lambda text: _revived(kind, json.loads(text))


def _revived(kind: Any, value: Any) -> Any:
    """The value of this type that `_plain` wrote."""
    if value is None:
        return None
    kind = _present(kind)
    if get_origin(kind) is tuple:
        return tuple(_revived(get_args(kind)[0], one) for one in value)
    if hasattr(kind, "__dataclass_fields__"):
        types = types_of(kind)  # a later version may store more fields in the same column
        return kind(**{name: _revived(types[name], one) for name, one in value.items() if name in types})
    return member(kind, value) if isinstance(kind, type) and issubclass(kind, Enum) else value


def _present(kind: Any) -> Any:
    """X for ``X | None``, the only union that occurs."""
    return next(one for one in get_args(kind) if one is not NoneType) if get_origin(kind) is UnionType else kind
