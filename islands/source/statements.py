"""A kernel file in pieces, each of which is Python by itself: what was read of one is kept for the next kernel.

Most children are their parent but for a line or two, and to parse and walk a whole file for each of them takes most of
the time that the engine has for a child (docs/results/2026-11-21-engine.md).
"""

import re
from itertools import pairwise

#: A text in three quotes, whose lines begin nothing.
_QUOTED = re.compile(r'"""(?:[^\\]|\\.)*?"""|' r"'''(?:[^\\]|\\.)*?'''", re.DOTALL)
#: The end of a line before one at which a statement may begin: none of those with which an outer statement goes on.
_BEFORE = re.compile(r"\n(?=@|(?!(?:elif|else|except|finally)\b)[^\W\d])")


def pieces(text: str) -> list[str]:
    """The text cut where its outermost statements may begin, decorators with what they decorate.

    A cut may be in the middle of something, for strings and comments are not told apart with certainty. Then the piece
    before it is no Python. Where every piece is, they are the statements of the file, since no piece ends in a string,
    in brackets or in a line that goes on, and each begins without indentation.
    """
    quoted = [found.span() for found in _QUOTED.finditer(text)]
    starts = [0, *(found.end() for found in _BEFORE.finditer(text))]
    free = [at for at in starts if not any(begin < at < end for begin, end in quoted)]
    cuts = [at for before, at in pairwise(free) if text[before] != "@"]
    return [text[start:end] for start, end in pairwise([0, *cuts, len(text)]) if start < end]
