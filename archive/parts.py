"""Records whose parts are stored and printed flat: a column or JSON field for each field of a part."""

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar, cast, get_type_hints

Record = TypeVar("Record")


class Part:
    """A part of a record. Its fields are columns and JSON fields of the record itself."""

    __slots__ = ()


@cache
def parts_of(kind: Any) -> Mapping[str, type[Part]]:
    """The fields of a record that are parts, by name."""
    types = get_type_hints(kind)
    return {name: types[name] for name in types if isinstance(types[name], type) and issubclass(types[name], Part)}


@cache
def types_of(kind: Any) -> Mapping[str, Any]:
    """Names and types of a record's fields, with the fields of each part in the part's place."""
    parts, types = parts_of(kind), get_type_hints(kind)
    found: dict[str, Any] = {}
    for name in kind.__dataclass_fields__:
        found |= types_of(cast(Any, parts[name])) if name in parts else {name: types[name]}
    return found


def flat(record: Any) -> dict[str, Any]:
    """The values of a record by name, those of its parts among them.

    They are not copied in depth, which makes dataclasses.asdict 20 times slower.
    """
    values: dict[str, Any] = {}
    for name in record.__dataclass_fields__:
        value = getattr(record, name)
        values |= flat(value) if isinstance(value, Part) else {name: value}
    return values


def grouped(kind: type[Record], /, **values: Any) -> Record:
    """The record of flat values; what is missing takes its default, and an unknown name is a TypeError."""
    parts = {
        name: part(**{inner: values.pop(inner) for inner in types_of(cast(Any, part)) if inner in values})
        for name, part in parts_of(cast(Any, kind)).items()
    }
    return kind(**values, **parts)


def changed(record: Record, /, **changes: Any) -> Record:
    """The record with other values for some of its columns."""
    return grouped(type(record), **flat(record) | changes)
