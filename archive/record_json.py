"""Records as JSON and back, for other files and processes: writing is exact, reading is strict.

The JSON is what ``--json`` prints: fields under their own names, ordered enums by name in lower case, tuples as lists.
JSON has no infinities; they are written as the strings "inf", "-inf" and "nan". Input is not trusted: an unknown field,
a missing one, a wrong type or an unknown enum value is a `RecordError` that names the field.
"""

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from kbevolve.archive.parts import flat, grouped, types_of
from kbevolve.configs.errors import RecordError, nearest

Record = TypeVar("Record")

#: How numbers that JSON lacks are written.
_NON_FINITE = ("inf", "-inf", "nan")
#: What is wanted for a field of each type.
_WANTED = {str: "a string", bool: "true or false", int: "a whole number", Path: "a string"}
#: The largest integer of SQLite.
_LARGEST = 2**63 - 1
#: Characters of a refused value in a message.
_SHOWN = 60


def to_json(value: Any, *, non_finite: Callable[[float], object] = repr) -> Any:
    """A record, a plain value, or lists and mappings of them, as numbers, strings, lists and dictionaries.

    `non_finite` replaces an infinity or NaN; `from_json` reads the default.
    """
    if isinstance(value, IntEnum):
        return value.name.lower()
    if isinstance(value, StrEnum | Path):
        return str(value)
    if hasattr(value, "__dataclass_fields__"):
        return {name: to_json(item, non_finite=non_finite) for name, item in flat(value).items()}
    if isinstance(value, Mapping):
        return {str(key): to_json(item, non_finite=non_finite) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item, non_finite=non_finite) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return non_finite(value)
    return value


def from_json(kind: type[Record], value: object) -> Record:
    """The record of this kind that `to_json` wrote.

    Fields with a default may be missing: an older version did not have them.

    Raises:
        RecordError: it is not such a record; the message names the field, its value and what is wanted.
    """
    record: Record = _read(kind, value, kind.__name__)
    return record


def _read(kind: Any, value: Any, where: str) -> Any:
    """A value of a type as `get_type_hints` gives it."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (UnionType, Union):
        (present,) = (one for one in arguments if one is not type(None))  # only "X | None" occurs
        return None if value is None else _read(present, value, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise _unexpected(where, value, "a list")
        return tuple(_read(arguments[0], item, f"{where}[{index}]") for index, item in enumerate(value))
    if origin is not None and issubclass(origin, Mapping):
        return {key: _read(arguments[1], item, f"{where}[{key!r}]") for key, item in _object(value, where).items()}
    if hasattr(kind, "__dataclass_fields__"):
        return _read_record(kind, _object(value, where), where)
    if issubclass(kind, Enum):
        names = {to_json(one): one for one in kind}
        if isinstance(value, str) and value in names:
            return names[value]
        raise _unexpected(where, value, f"one of {', '.join(names)}")
    return _read_plain(kind, value, where)


def _read_record(kind: Any, values: dict[str, Any], where: str) -> Any:
    types = types_of(kind)
    for name in values:
        if name not in types:
            raise RecordError(f"{where} has no field {name!r}. {nearest(name, types)}")
    for one in fields(kind):
        if one.default is MISSING and one.default_factory is MISSING and one.name not in values:
            raise RecordError(f"{where}.{one.name} is missing")
    return grouped(kind, **{name: _read(types[name], item, f"{where}.{name}") for name, item in values.items()})


def _read_plain(kind: Any, value: Any, where: str) -> object:
    if kind is float:
        if isinstance(value, str) and value in _NON_FINITE:
            return float(value)
        if type(value) in (int, float) and abs(value) <= sys.float_info.max:
            return float(value)
        raise _unexpected(where, value, "a number")
    if kind is Path and isinstance(value, str):
        return Path(value)
    if type(value) is kind and (kind is not int or abs(value) <= _LARGEST):
        return value
    raise _unexpected(where, value, _WANTED[kind])


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _unexpected(where, value, "an object")
    return value


def _unexpected(where: str, value: object, wanted: str) -> RecordError:
    shown = repr(value)
    return RecordError(f"{where} is {shown if len(shown) <= _SHOWN else shown[:_SHOWN] + ' …'}; {wanted} is wanted")


def plain(value: Any) -> Any:
    """As `to_json`, with null for infinities and NaN: for output that is not read back."""
    return to_json(value, non_finite=lambda number: None)
