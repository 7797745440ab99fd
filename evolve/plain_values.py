"""Records as plain values, for ``--json``: what scripts read is named as in `archive.records`."""

import json
import math
from collections.abc import Mapping
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any

import click


def print_json_line(value: object) -> None:
    """Print one JSON object as one line, last on standard output.

    In ASCII: a message may hold characters that some readers take for line ends (U+2028), or halves of surrogate pairs,
    which no terminal can be sent.
    """
    click.echo(json.dumps(plain(value), ensure_ascii=True, allow_nan=False))


def print_json(value: object) -> None:
    """Print records, or lists and mappings of them, as indented JSON."""
    click.echo(json.dumps(plain(value), indent=2, ensure_ascii=False))


def plain(value: Any) -> Any:
    """Numbers, strings, lists and dictionaries only. Ordered enums become their names in lower case."""
    if isinstance(value, IntEnum):
        return value.name.lower()
    if isinstance(value, StrEnum | Path):
        return str(value)
    if hasattr(value, "__dataclass_fields__"):
        return {name: plain(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no infinity; the error of an output full of NaN is one
    return value
