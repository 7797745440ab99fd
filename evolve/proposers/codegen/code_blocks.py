"""Fenced code blocks in a model's answer, also where fences are nested."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

#: A line that opens or closes a block; only one without `info` closes.
FENCE = re.compile(r"(?P<indent>\s*+)(?P<ticks>`{3,}+|~{3,}+)\s*+(?P<info>[^`]*)")

#: The last fences of an answer, of which all pairs are tried; the time grows with their square.
MOST_FENCES = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeBlock:
    """The content of a fence, without the fence's own indentation."""

    text: str
    #: Whether the fence was closed; an answer that was cut short leaves its last one open.
    closed: bool = True


def lines_of(text: str) -> list[str]:
    """The lines of a text with any line ends."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def code_blocks(answer: str) -> list[CodeBlock]:
    """The fenced blocks in order: each ends at the first fence that can close it."""
    blocks: list[CodeBlock] = []
    inside: list[str] = []
    opening: re.Match[str] | None = None
    for line in lines_of(answer):
        fence = FENCE.fullmatch(line)
        if opening is None:
            opening, inside = fence, []
        elif fence and _closes(fence, opening):
            blocks.append(CodeBlock(text=_text(inside, opening)))
            opening = None
        else:
            inside.append(line)
    if opening is not None:
        blocks.append(CodeBlock(text=_text(inside, opening), closed=False))
    return blocks


def possible_blocks(answer: str) -> Iterator[Iterator[CodeBlock]]:
    """For every fence the blocks that it may open, the shortest first.

    For nested fences: a whole answer inside a fence, or a docstring that quotes one. Only the content can show which
    block is meant.
    """
    lines = lines_of(answer)
    fences = [(at, found) for at, line in enumerate(lines) if (found := FENCE.fullmatch(line))][-MOST_FENCES:]
    for number, (first, opening) in enumerate(fences):
        yield (
            CodeBlock(text=_text(lines[first + 1 : last], opening))
            for last, fence in fences[number + 1 :]
            if _closes(fence, opening)
        )


def _closes(fence: re.Match[str], opening: re.Match[str]) -> bool:
    return not fence["info"] and fence["ticks"].startswith(opening["ticks"])


def _text(lines: list[str], opening: re.Match[str]) -> str:
    """Lines without the indentation of the fence, as far as they have it."""
    indent = len(opening["indent"])
    return "\n".join(line[min(indent, len(line) - len(line.lstrip())) :] for line in lines)
