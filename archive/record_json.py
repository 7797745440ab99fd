"""Records as JSON and back, for other files and processes: writing is exact, reading is strict.

The JSON is what ``--json`` prints: fields under their own names, ordered enums by name in lower case, tuples as lists.
JSON has no infinities; they are written as the strings "inf", "-inf" and "nan". Input is not trusted: an unknown field,
a missing one, a wrong type or an unknown enum value is a `RecordError` that names the field.
"""

import math
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
#: The largest integer of SQLite.
_LARGEST = 2**63 - 1
#: Characters of a refused value in a message.
_SHOWN = 60


def to_json(value: Any, *, non_finite: Callable[[float], object] = repr) -> Any:
    """A record, or lists and mappings of them, as numbers, strings, lists and dictionaries.

    Args:
        value: a record, a plain value, or lists and mappings of them.
        non_finite: replaces an infinity or NaN; `from_json` reads the default.
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
    if issubclass(kind, Enum):
        return _read_member(kind, value, where)
    if hasattr(kind, "__dataclass_fields__"):
        return _read_record(kind, _object(value, where), where)
    if issubclass(kind, Path):
        return kind(_read(str, value, where))
    return _PLAIN[kind](value, where)


def _read_record(kind: Any, values: dict[str, Any], where: str) -> Any:
    types = types_of(kind)
    for name in values:
        if name not in types:
            raise RecordError(f"{where} has no field {name!r}. {nearest(name, types)}")
    for one in fields(kind):
        if one.default is MISSING and one.default_factory is MISSING and one.name not in values:
            raise RecordError(f"{where}.{one.name} is missing")
    return grouped(kind, **{name: _read(types[name], item, f"{where}.{name}") for name, item in values.items()})


def _read_member(kind: type[Enum], value: Any, where: str) -> Enum:
    names = {to_json(one): one for one in kind}
    if not isinstance(value, str) or value not in names:
        raise _unexpected(where, value, f"one of {', '.join(names)}")
    return names[value]


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _unexpected(where, value, "an object")
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise _unexpected(where, value, "a string")
    return value


def _truth(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise _unexpected(where, value, "true or false")
    return value


def _whole(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _LARGEST:
        raise _unexpected(where, value, "a whole number")
    return value


def _number(value: Any, where: str) -> float:
    if isinstance(value, str) and value in _NON_FINITE:
        return float(value)
    try:
        if not isinstance(value, bool) and isinstance(value, int | float) and math.isfinite(value):
            return float(value)
    except OverflowError:
        pass
    raise _unexpected(where, value, "a number")


#: Type of a field -> what reads it.
_PLAIN: Mapping[Any, Callable[[Any, str], object]] = {str: _text, bool: _truth, int: _whole, float: _number}


def _unexpected(where: str, value: object, wanted: str) -> RecordError:
    shown = repr(value)
    return RecordError(f"{where} is {shown if len(shown) <= _SHOWN else shown[:_SHOWN] + ' …'}; {wanted} is wanted")


def plain(value: Any) -> Any:
    """As `to_json`, with null for infinities and NaN: for output that is not read back."""
    return to_json(value, non_finite=lambda number: None)
