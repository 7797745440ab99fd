"""A kernel file in pieces, each of which is Python by itself: what was read of one is kept for the next kernel.

Most children are their parent but for a line or two, and to parse and walk a whole file for each of them takes most of
the time that the engine has for a child (docs/results/2026-11-21-engine.md).
"""

import re

#: A text in three quotes, whose lines begin nothing; or a line at which a statement may begin: none of those with which
#: an outer statement goes on.
_START = re.compile(
    r"""("{3}|'{3})(?:[^\\]|\\.)*?\1|^(?P<start>@|(?!(?:elif|else|except|finally)\b)[^\W\d])""",
    re.MULTILINE | re.DOTALL,
)


def pieces(text: str) -> list[str]:
    """The text cut where its outermost statements may begin, decorators with what they decorate.

    A cut may be in the middle of something, for strings and comments are not told apart with certainty. Then the piece
    before it is no Python. Where every piece is, they are the statements of the file, since no piece ends in a string,
    in brackets or in a line that goes on, and each begins without indentation.
    """
    starts = [found.start() for found in _START.finditer(text) if found["start"]]
    cuts = [at for before, at in zip([None, *starts], starts, strict=False) if before is None or text[before] != "@"]
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True) if start < end]
