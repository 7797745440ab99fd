"""Stage one: optimisation ideas in words, read off a model's answer, and the choice of one.

A batch is asked for with each child and one idea of it is drawn; what was not drawn is not kept. Keeping it would
save the smaller of two calls, but a proposer that remembers gives other children after a resume than it would have
given without the interruption, and the archive knows only ideas that were tried. Several are asked for although one
is used, because a model asked for one gives its favourite every time: drawing from a list is what spreads the
islands.
"""

import ast
import json
import math
import re
from collections.abc import Collection, Iterator, Sequence
from random import Random
from typing import Any

from kbevolve.archive.records import Idea
from kbevolve.configs.playbook import Playbook, PlaybookIdea

#: Who an idea is from when no model had one.
PLAYBOOK = "playbook"

#: Longest title and mechanism that are kept, characters: a title goes into tables, both go into prompts.
TITLE_LENGTH = 100
MECHANISM_LENGTH = 800

#: Larger promised gains are slips ("20" for 20 %), not estimates.
LARGEST_GAIN = 1000.0


def parse_ideas(answer: str, playbook: Playbook, *, proposed_by: str) -> tuple[Idea, ...]:
    """The ideas of an answer, in its order, without repetitions; () when it holds none.

    Takes a JSON array, an object around one, single objects, with prose and fences around, trailing commas,
    Python's quotes, and an array that was cut short: its complete objects count.
    """
    ideas: dict[str, Idea] = {}
    for entry in _entries(answer):
        idea = _idea(entry, playbook, proposed_by)
        if idea is not None:
            ideas.setdefault(_folded(idea.title), idea)
    return tuple(ideas.values())


def choose_idea(ideas: Sequence[Idea], tried: Collection[Idea], rng: Random) -> Idea | None:
    """One idea, the earlier the likelier (weight 1/position), because models name their best first; None when all of
    them were tried."""
    known = {_folded(idea.title) for idea in tried}
    fresh = [idea for idea in ideas if _folded(idea.title) not in known]
    if not fresh:
        return None
    return rng.choices(fresh, [1 / position for position in range(1, len(fresh) + 1)])[0]


def playbook_idea(entries: Sequence[PlaybookIdea], tried: Collection[Idea], rng: Random) -> Idea:
    """One of the playbook's ideas, an untried one as long as there is one. `entries` is not empty."""
    known = {_folded(idea.title) for idea in tried}
    entry = rng.choice([entry for entry in entries if _folded(entry.title) not in known] or entries)
    return Idea(
        title=entry.title,
        mechanism=entry.mechanism,
        technique=entry.technique,
        bottleneck=entry.bottleneck,
        expected_gain=entry.gain[0],
        proposed_by=PLAYBOOK,
    )


def parse_gain(value: Any) -> float | None:
    """A factor from ``1.3``, ``"1.2-1.5x"`` (the first number) or ``"10 %"``; None when it is no speedup."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    number = re.search(r"\d+(\.\d+)?", str(value))
    if number is None:
        return None
    gain = float(number[0])
    if "%" in str(value):
        gain = 1 + gain / 100
    return gain if math.isfinite(gain) and 1 <= gain <= LARGEST_GAIN else None


def _idea(entry: dict[str, Any], playbook: Playbook, proposed_by: str) -> Idea | None:
    fields = {str(name).strip().lower().replace(" ", "_"): value for name, value in entry.items()}
    title = _line(fields.get("title"), TITLE_LENGTH)
    mechanism = _line(fields.get("mechanism") or fields.get("description"), MECHANISM_LENGTH)
    if not title:
        return None
    return Idea(
        title=title,
        mechanism=mechanism or title,
        technique=playbook.technique(_line(fields.get("technique"), TITLE_LENGTH)),
        bottleneck=_line(fields.get("bottleneck"), TITLE_LENGTH),
        expected_gain=parse_gain(fields.get("expected_gain")),
        proposed_by=proposed_by,
    )


def _entries(answer: str) -> Iterator[dict[str, Any]]:
    """Every object with a title, wherever it is in the answer."""
    text = re.sub(r",(\s*[}\]])", r"\1", answer)
    decoder = json.JSONDecoder(strict=False)
    at, found = text.find("{"), False
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except (json.JSONDecodeError, RecursionError):
            end = at + 1  # not here, perhaps inside: an array that was cut short is no JSON, its members are
        else:
            for entry in _titled(value):
                found = True
                yield entry
        at = text.find("{", end)
    if not found:
        yield from _titled(_literal(text))


def _titled(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if any(str(name).strip().lower() == "title" for name in value):
            yield value
        else:
            for member in value.values():
                yield from _titled(member)
    elif isinstance(value, list):
        for member in value:
            yield from _titled(member)


def _literal(text: str) -> Any:
    """The outermost brackets of a text as a Python literal, None when they are none."""
    start = min((at for at in (text.find("["), text.find("{")) if at >= 0), default=-1)
    end = max(text.rfind("]"), text.rfind("}"))
    if not 0 <= start < end:
        return None
    try:
        return ast.literal_eval(text[start : end + 1])
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _line(value: Any, length: int) -> str:
    """A value as one line."""
    return " ".join(str(value).split())[:length] if isinstance(value, str | int | float) else ""


def _folded(title: str) -> str:
    """A title without case and punctuation, so that "Larger tiles." and "larger-tiles" are one."""
    return " ".join(re.findall(r"\w+", title.lower()))
