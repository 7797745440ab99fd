"""Source as HTML: highlighted lines, and two files side by side. Everything that is not markup of ours is escaped."""

import difflib
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from markupsafe import Markup, escape
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import DiffLexer, PythonLexer

#: Characters of a text that is highlighted, and of a line that is shown; lines of a text that is compared. Beyond them
#: a page would take seconds, and no reader needs it.
MOST_HIGHLIGHTED, MOST_OF_A_LINE, MOST_LINES = 150_000, 1_000, 5_000
#: Characters that are invisible or change the order of what is read: a source that looks like another one.
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
_PYTHON, _DIFF = PythonLexer(stripnl=False, ensurenl=False), DiffLexer(stripnl=False, ensurenl=False)
_HTML = HtmlFormatter(nowrap=True, classprefix="h-")


class DiffRow(NamedTuple):
    """A line of two files beside each other; a side without a line has number None."""

    #: "same", "change", "delete", "insert", or "skip" for lines that are left out.
    kind: str
    left: int | None
    left_line: Markup
    right: int | None
    right_line: Markup


def visible(text: str) -> str:
    """Text with a mark for each invisible character, and without the end of very long lines."""
    lines = _INVISIBLE.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n")).split("\n")
    return "\n".join(map(_cut, lines))


def source_lines(text: str) -> tuple[Markup, ...]:
    """The lines of a Python file, highlighted."""
    return _lines(visible(text).rstrip("\n"), _PYTHON)


@lru_cache(maxsize=200)
def _lines(text: str, lexer: Lexer) -> tuple[Markup, ...]:
    if len(text) > MOST_HIGHLIGHTED:
        return tuple(escape(line) for line in text.split("\n"))
    markup: str = highlight(text, lexer, _HTML)  # Pygments escapes the text
    return tuple(map(Markup, markup.removesuffix("\n").split("\n")))


def changes(older: str, newer: str) -> tuple[Markup, ...]:
    """The unified diff of two sources, highlighted; empty for equal ones."""
    before, after = (visible(text).split("\n")[:MOST_LINES] for text in (older, newer))
    lines = list(difflib.unified_diff(before, after, lineterm="", n=2))[2:]
    return _lines("\n".join(lines), _DIFF) if lines else ()


def side_by_side(older: str, newer: str, *, context: int | None = 4) -> list[DiffRow]:
    """Two sources line by line. With `context`, of long equal stretches only so many lines at both ends."""
    left, right = ([line.rstrip() for line in visible(text).rstrip("\n").split("\n")] for text in (older, newer))
    shown_left, shown_right = source_lines("\n".join(left)), source_lines("\n".join(right))
    left, right = left[:MOST_LINES], right[:MOST_LINES]
    rows: list[DiffRow] = []
    matcher = difflib.SequenceMatcher(None, left, right, autojunk=len(left) + len(right) > 2_000)
    for tag, a, a_end, b, b_end in matcher.get_opcodes():
        if tag == "equal":
            rows += _equal(list(zip(range(a, a_end), range(b, b_end), strict=True)), shown_left, shown_right, context)
            continue
        for offset in range(max(a_end - a, b_end - b)):
            rows.append(
                DiffRow(
                    {"replace": "change"}.get(tag, tag),
                    a + offset + 1 if a + offset < a_end else None,
                    shown_left[a + offset] if a + offset < a_end else Markup(),
                    b + offset + 1 if b + offset < b_end else None,
                    shown_right[b + offset] if b + offset < b_end else Markup(),
                )
            )
    return rows


def _equal(
    pairs: Sequence[tuple[int, int]], left: Sequence[Markup], right: Sequence[Markup], context: int | None
) -> Iterator[DiffRow]:
    hidden = range(context, len(pairs) - context) if context is not None and len(pairs) > 2 * context + 1 else range(0)
    for index, (a, b) in enumerate(pairs):
        if index not in hidden:
            yield DiffRow("same", a + 1, left[a], b + 1, right[b])
        elif index == hidden.start:
            words = Markup("{} equal lines").format(len(hidden))
            yield DiffRow("skip", None, words, None, Markup())


def _cut(line: str) -> str:
    if len(line) <= MOST_OF_A_LINE:
        return line
    return f"{line[:MOST_OF_A_LINE]} … {len(line) - MOST_OF_A_LINE:,} more characters"
