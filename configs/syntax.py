"""Python texts as syntax trees, in a program of several threads."""

import ast
import contextlib

#: A failure needs another thread at the same point; so many failures in a row have another cause.
_TRIES = 5


def parse(source: str) -> ast.Module:
    """As `ast.parse`.

    Python 3.11 before 3.11.8 counts the depth of all threads' trees in one place and may raise a SystemError about any
    text while another thread parses one (python/cpython issue 106905). The text is then parsed again.
    """
    for _ in range(_TRIES - 1):
        with contextlib.suppress(SystemError):
            return ast.parse(source)
    return ast.parse(source)
