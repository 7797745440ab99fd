"""The open questions of a run as a short list, for a person at a terminal; scripts get all of them as JSON."""

from collections.abc import Mapping
from typing import Any

from kbevolve.archive.formatting import as_times
from kbevolve.evolve.cli.render.console import Console
from kbevolve.evolve.cli.render.tables import Column, explain, print_table, say

_Question = Mapping[str, Any]
_COLUMNS: tuple[Column[_Question], ...] = (
    Column("question", lambda one: one["question"].partition("/")[2]),
    Column("wants", lambda one: "an idea" if one["stage"] == "idea" else "code"),
    Column("operator", lambda one: one["operator"]),
    Column("parents", lambda one: ", ".join(map(_parent, one["parents"])), flexible=True),
    Column("prompt", lambda one: one.get("prompt") or f"{_characters(one):,} characters", flexible=True),
)


def print_questions(console: Console, found: Mapping[str, Any]) -> None:
    """Print what `kbevolve ask` found, without the prompts."""
    best = found["best"]
    if best and best["speedup"]:
        confirmed = " (confirmed)" if best["confirmed"] else ""
        say(console, f"Best so far: {best['kernel']}, {as_times(best['speedup'])} the speed of eager{confirmed}.")
    if not found["questions"]:
        return
    print_table(console, _COLUMNS, found["questions"])
    if "prompt" not in found["questions"][0]:
        explain(console, "To read the prompts as files: kbevolve ask --prompts DIR. With --json all is in the output.")


def _parent(one: Mapping[str, Any]) -> str:
    speedup = f" {as_times(one['speedup'])}" if one.get("speedup") else f" {one.get('verdict', '')}".rstrip()
    return f"{one['kernel'][:8]}{speedup}"


def _characters(one: _Question) -> int:
    return len(one["system"]) + sum(len(message["content"]) for message in one["messages"])
