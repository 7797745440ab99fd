"""Stage one: parse optimisation ideas from a model's answer, and choose one by the run's results so far.

Each child asks for several ideas, carries out one, and drops the others. Several, because a model asked for one gives
its favourite every time: drawing from a list makes the islands differ. The others are dropped although keeping them
would save the smaller of two requests: a proposer with a memory would give other children after a resume than without
the interruption, and the archive knows only tried ideas.
"""

import contextlib
import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from kbevolve.archive.records import Idea
from kbevolve.configs.playbook import Playbook, PlaybookIdea
from kbevolve.configs.syntax import literal
from kbevolve.evolve.proposers.base import Brief
from kbevolve.evolve.proposers.codegen.idea_filters import SPLIT, is_launch_heavy, is_library_bound, limit_of
from kbevolve.evolve.state.idea_choice import STRANGERS, draw_idea, is_taken
from kbevolve.evolve.state.normalise import ARITHMETIC, LAUNCHES, bottleneck_class, folded

#: `Idea.proposed_by` of an idea that no model had.
PLAYBOOK = "playbook"

#: Share of the playbook's ideas shown that are against what limits the kernel.
FITTING = 2 / 3

#: Ideas against the cost of launches, of the playbook's ideas shown, where launches matter but may not be the limit.
LAUNCH_IDEAS = 2

#: Longest title, bottleneck and mechanism, characters: titles are shown in tables, all three in prompts. Of 20 ideas
#: of a strong model the longest plan had 844, the longest bottleneck 222 (2026-11-24).
TITLE_LENGTH = 100
BOTTLENECK_LENGTH = 300
MECHANISM_LENGTH = 2000

#: Characters of an answer that are read: a list of ideas has some thousand.
MOST_READ = 100_000

#: Larger claims are slips ("20" for 20 %), not estimates.
LARGEST_GAIN = 1000.0


def parse_ideas(answer: str, playbook: Playbook, *, proposed_by: str) -> tuple[Idea, ...]:
    """The ideas of an answer, in its order, without repetitions; () when it has none.

    Accepts a JSON array, an object around one, and single objects, with prose and fences around them, trailing commas,
    Python's quotes, and an array that was cut short, of which the complete objects count. Never raises.
    """
    ideas: dict[str, Idea] = {}
    with contextlib.suppress(RecursionError):  # objects within objects, which no prompt asked for
        for entry in _entries(answer[:MOST_READ]):
            idea = _idea(entry, playbook, proposed_by)
            if idea is not None:
                ideas.setdefault(folded(idea.title), idea)
    return tuple(ideas.values())


def choose_idea(ideas: Sequence[Idea], brief: Brief, taken: Sequence[Idea] = ()) -> Idea | None:
    """One of the untried ideas (`evolve.state.idea_choice`); None when there is none.

    `taken`: ideas that other children in flight carry out. A child that knows of no results carries out the first idea
    that none of them has: its author knows more than the run.
    """
    fresh = [idea for idea in ideas if not _spent(idea.title, brief)]
    if brief.learnt.memory.births == 0:
        first = next((idea for idea in fresh if not is_taken(idea, taken)), None)
        if first is not None:
            return first
    return _chosen(fresh, brief, taken) if fresh else None


def playbook_idea(entries: Sequence[PlaybookIdea], brief: Brief, taken: Sequence[Idea] = ()) -> Idea:
    """One of the playbook's ideas; a tried one only if all were tried. `entries` is not empty."""
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
    return _chosen([idea for idea in ideas if not _spent(idea.title, brief)] or ideas, brief, taken)


def shortlist(entries: Sequence[PlaybookIdea], brief: Brief, count: int) -> list[PlaybookIdea]:
    """The playbook's ideas to show to a child, in the order of the file.

    Most are against what limits the main parent. Among those, and among the others, a draw from the beliefs about
    their techniques decides; exhausted ones are shown only where there are no others. Where a library's fp32 products
    are the limit, their splitting into parts is always shown; where launches cost the host much, two ideas against it.
    """
    experience, rng, family = brief.learnt.memory.experience, brief.rng, brief.island.policy.techniques
    limit = limit_of(brief)
    replaces_products = limit == ARITHMETIC and is_library_bound(brief)
    worth = []
    for index, entry in enumerate(entries):
        drawn = experience.belief(entry.technique, bottleneck_class(entry.bottleneck), brief.island.number).draw(rng)
        home = not family or entry.technique in family
        outcome = brief.learnt.memory.outcome(entry.title)
        worth.append((outcome is None or not outcome.exhausted, drawn * (1.0 if home else STRANGERS), index))
    ranked = [entries[index] for _, _, index in sorted(worth, reverse=True)]
    always = [entry for entry in ranked if replaces_products and entry.technique == SPLIT]
    if is_launch_heavy(brief):
        always += [entry for entry in ranked if bottleneck_class(entry.bottleneck) == LAUNCHES][:LAUNCH_IDEAS]
    fitting = [entry for entry in ranked if bottleneck_class(entry.bottleneck) == limit][: round(FITTING * count)]
    shown = list(dict.fromkeys((*always, *fitting, *ranked)))[:count]
    return [entry for entry in entries if entry in shown]


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
    title = one_line(fields.get("title"), TITLE_LENGTH)
    mechanism = one_line(fields.get("mechanism") or fields.get("description"), MECHANISM_LENGTH)
    if not title:
        return None
    return Idea(
        title=title,
        mechanism=mechanism or title,
        technique=playbook.technique(one_line(fields.get("technique"), TITLE_LENGTH)),
        bottleneck=one_line(fields.get("bottleneck"), BOTTLENECK_LENGTH),
        expected_gain=parse_gain(fields.get("expected_gain")),
        proposed_by=proposed_by,
    )


def _entries(answer: str) -> Iterator[dict[str, Any]]:
    """Every object with a title, anywhere in the answer."""
    text = re.sub(r",(\s*[}\]])", r"\1", answer)
    decoder = json.JSONDecoder(strict=False)
    at, found = text.find("{"), False
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):  # no JSON, or a number of thousands of digits
            end = at + 1  # perhaps inside: an array that was cut short is no JSON, but its members are
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
    """The text between the outermost brackets as a Python literal; None when it is none."""
    start = min((at for at in (text.find("["), text.find("{")) if at >= 0), default=-1)
    end = max(text.rfind("]"), text.rfind("}"))
    if not 0 <= start < end:
        return None
    try:
        return literal(text[start : end + 1])
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def one_line(value: Any, length: int) -> str:
    """A value as one line, cut behind a word."""
    text = " ".join(str(value).split()) if isinstance(value, str | int | float) else ""
    return text if len(text) <= length else (text[: length - 1].rpartition(" ")[0] or text[: length - 1]) + "…"


def _spent(title: str, brief: Brief) -> bool:
    """Whether an idea was tried; one that failed once is not spent, because the code may be to blame."""
    outcome = brief.learnt.memory.outcome(title)
    return outcome is not None and not outcome.open


def _chosen(ideas: Sequence[Idea], brief: Brief, taken: Sequence[Idea]) -> Idea:
    return draw_idea(
        ideas,
        brief.learnt.memory,
        brief.rng,
        taken=taken,
        island=brief.island.number,
        policy=brief.island.policy,
        stage=brief.island.stage,
    )
