"""Tunables that a kernel declares in its source, and the text with other values.

A line of Python or of C++ declares one, its current value among the choices::

    BLOCK_M = 64  # tune: 32, 64, 128
    #define UNROLL 4  // tune: 1, 2, 4, 8

A switch for an idea is a tunable with the choices 0 and 1. Values are plain words, which nothing here interprets.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from kbevolve.archive.identity import digest

_DECLARATION = re.compile(
    r"^(?P<head>[ \t]*(?:\#define[ \t]+(?P<macro>\w+)[ \t]+|(?P<name>\w+)[ \t]*=[ \t]*))"
    r"(?P<value>[^\s#/]+)"
    r"(?P<tail>[ \t]*(?:\#|//)[ \t]*tune:[ \t]*(?P<choices>[^\n]+))$",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tunable:
    """One declared tunable."""

    name: str
    #: The value in the source now.
    value: str
    #: All values it may take, in the order declared.
    choices: tuple[str, ...]


# Called for every kernel of an island at every child; the cache holds as many as islands and history do.
@lru_cache(maxsize=4096)
def declared(source: str) -> tuple[Tunable, ...]:
    """The tunables of a kernel, in order of appearance.

    A current value that is not among the choices counts as one more choice. A name declared twice (say in two strings
    of one file) is one tunable; `with_values` sets both lines.
    """
    found: dict[str, Tunable] = {}
    for match in _DECLARATION.finditer(source):
        name, value = match["macro"] or match["name"], match["value"]
        # A note may follow the list, in parentheses or after a semicolon; only words before it are choices.
        words = [word.strip() for word in re.split(r"[;(]", match["choices"])[0].split(",")]
        choices = tuple(dict.fromkeys(word for word in words if word))
        if name not in found and len(choices) > 1:
            found[name] = Tunable(name=name, value=value, choices=choices if value in choices else (value, *choices))
    return tuple(found.values())


def values_of(source: str) -> dict[str, str]:
    """Name -> current value."""
    return {tunable.name: tunable.value for tunable in declared(source)}


def with_values(source: str, values: Mapping[str, str]) -> str:
    """The source with some tunables set to other values; nothing else changes."""

    def replace(match: re.Match[str]) -> str:
        name = match["macro"] or match["name"]
        return f"{match['head']}{values.get(name, match['value'])}{match['tail']}"

    return _DECLARATION.sub(replace, source)


# Called likewise for every kernel of the history.
@lru_cache(maxsize=4096)
def skeleton(source: str) -> str:
    """Identity of a kernel without its tunables' values: settings of one skeleton can be compared and crossed."""
    return digest(with_values(source, dict.fromkeys(values_of(source), "?")))
