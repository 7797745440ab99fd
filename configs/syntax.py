"""Python texts as syntax trees, in a program of several threads."""

import ast
import contextlib

#: Each failure needs another thread at the same point; so many in a row are none of that kind.
_TRIES = 5


def parse(source: str) -> ast.Module:
    """As `ast.parse`.

    Python 3.11 before 3.11.8 counts the depth of all threads' trees in one place and may raise a SystemError about any
    text while another thread parses one (python/cpython issue 106905). Such a text is parsed again.
    """
    for _ in range(_TRIES - 1):
        with contextlib.suppress(SystemError):
            return ast.parse(source)
    return ast.parse(source)
