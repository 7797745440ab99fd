"""Stage one: optimisation ideas in words, read off a model's answer, and the choice of one by what paid so far.

A batch is asked for with each child and one idea of it is chosen; what was not is not kept. Keeping it would
save the smaller of two calls, but a proposer that remembers gives other children after a resume than it would have
given without the interruption, and the archive knows only ideas that were tried. Several are asked for although one
is used, because a model asked for one gives its favourite every time: drawing from a list is what spreads the
islands.
"""

import ast
import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from kbevolve.archive.records import Idea
from kbevolve.configs.playbook import Playbook, PlaybookIdea
from kbevolve.evolve.proposers.base import Brief
from kbevolve.evolve.state.idea_choice import STRANGERS, draw_idea
from kbevolve.evolve.state.normalise import bottleneck_class, folded

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
            ideas.setdefault(folded(idea.title), idea)
    return tuple(ideas.values())


def choose_idea(ideas: Sequence[Idea], brief: Brief) -> Idea | None:
    """One of the ideas that were not tried (`evolve.state.idea_choice`); None when there is none."""
    fresh = [idea for idea in ideas if not _spent(idea.title, brief)]
    return _chosen(fresh, brief) if fresh else None


def playbook_idea(entries: Sequence[PlaybookIdea], brief: Brief) -> Idea:
    """One of the playbook's ideas, an untried one as long as there is one, chosen likewise. `entries` is not empty."""
    ideas = [
        Idea(
            title=entry.title,
            mechanism=entry.mechanism,
            technique=entry.technique,
            bottleneck=entry.bottleneck,
            expected_gain=entry.gain[0],
            proposed_by=PLAYBOOK,
        )
        for entry in entries
    ]
    brief.rng.shuffle(ideas)
    return _chosen([idea for idea in ideas if not _spent(idea.title, brief)] or ideas, brief)


def shortlist(entries: Sequence[PlaybookIdea], brief: Brief, count: int) -> list[PlaybookIdea]:
    """Ideas of the playbook to be shown for a child, in the order of the file: those whose techniques promise most in a
    draw from what is believed of them, exhausted ideas only where there are no others."""
    experience, rng, family = brief.learnt.memory.experience, brief.rng, brief.island.policy.techniques
    worth = []
    for index, entry in enumerate(entries):
        drawn = experience.belief(entry.technique, bottleneck_class(entry.bottleneck), brief.island.number).draw(rng)
        home = not family or entry.technique in family
        outcome = brief.learnt.memory.outcome(entry.title)
        worth.append((outcome is None or not outcome.exhausted, drawn * (1.0 if home else STRANGERS), index))
    return [entries[index] for index in sorted(index for _, _, index in sorted(worth, reverse=True)[:count])]


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


def _spent(title: str, brief: Brief) -> bool:
    """Whether an idea was tried, and not merely failed once: then the code may be to blame."""
    outcome = brief.learnt.memory.outcome(title)
    if outcome is not None:
        return not outcome.open
    return folded(title) in {folded(idea.title) for idea in brief.learnt.tried}


def _chosen(ideas: Sequence[Idea], brief: Brief) -> Idea:
    return draw_idea(
        ideas,
        brief.learnt.memory.experience,
        brief.rng,
        island=brief.island.number,
        policy=brief.island.policy,
        stage=brief.island.stage,
    )
