"""Code fences in a model's answer: the blocks between them, also where fences stand within fences."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

#: A line that opens or closes a block; only one without `info` closes.
FENCE = re.compile(r"(?P<indent>\s*)(?P<ticks>`{3,}|~{3,})\s*(?P<info>[^`]*)")

#: Fences from the end of an answer that are tried against each other; the time grows with their square.
MOST_FENCES = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """What a fence encloses, without the fence's own indentation."""

    text: str
    #: Whether the fence was closed; an answer that was cut short leaves its last one open.
    closed: bool = True


def lines_of(text: str) -> list[str]:
    """The lines of a text, whatever its line ends are."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def blocks_of(answer: str) -> list[Block]:
    """The fenced blocks, one after another: each ends at the first fence that can close it."""
    blocks: list[Block] = []
    inside: list[str] | None = None
    opening: re.Match[str] | None = None
    for line in lines_of(answer):
        fence = FENCE.fullmatch(line)
        if inside is None or opening is None:
            if fence:
                inside, opening = [], fence
        elif fence and _closes(fence, opening):
            blocks.append(Block(text=_text(inside, opening)))
            inside = None
        else:
            inside.append(line)
    if inside is not None and opening is not None:
        blocks.append(Block(text=_text(inside, opening), closed=False))
    return blocks


def readings_of(answer: str) -> Iterator[Iterator[Block]]:
    """For every fence the blocks that it may open, the shortest first.

    For answers in which fences stand within fences: a whole answer in a fence of its own, or a docstring that quotes
    one. Which of the readings is meant only their content can tell.
    """
    lines = lines_of(answer)
    fences = [(at, found) for at, line in enumerate(lines) if (found := FENCE.fullmatch(line))][-MOST_FENCES:]
    for number, (first, opening) in enumerate(fences):
        yield (
            Block(text=_text(lines[first + 1 : last], opening))
            for last, fence in fences[number + 1 :]
            if _closes(fence, opening)
        )


def _closes(fence: re.Match[str], opening: re.Match[str]) -> bool:
    return not fence["info"] and fence["ticks"].startswith(opening["ticks"])


def _text(lines: list[str], opening: re.Match[str]) -> str:
    """Lines without the indentation of the fence, as far as they have it."""
    indent = len(opening["indent"])
    return "\n".join(line[min(indent, len(line) - len(line.lstrip())) :] for line in lines)
