"""Python texts as syntax trees, in a program of several threads. All packages parse here."""

import ast
import threading
from typing import Any

#: Characters of a kernel's file that anyone reads; the largest that are known have some 100,000.
MOST_SOURCE = 1_000_000
#: Replacement fields times characters: Python's parser takes so much time for an f-string, 1.2 s at this limit.
_MOST_FIELDS = 5_000_000_000
#: Held by the thread that parses. No thread is delayed by it: Python runs one at a time in any case.
_PARSER = threading.Lock()


def parse(source: str) -> ast.Module:
    """As `ast.parse`.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: it is no Python, or too much for the parser.
    """
    tree = _parsed(source, "exec")
    assert isinstance(tree, ast.Module), "the mode says so"
    return tree


def expression(text: str) -> ast.expr:
    """The tree of a single expression. Raises what `parse` raises."""
    tree = _parsed(text, "eval")
    assert isinstance(tree, ast.Expression), "the mode says so"
    return tree.body


def literal(value: str | ast.expr) -> Any:
    """As `ast.literal_eval`: the plain value that a text or a tree writes. Raises what `parse` raises."""
    return ast.literal_eval(expression(value.lstrip(" \t")) if isinstance(value, str) else value)


def _parsed(source: str, mode: str) -> ast.AST:
    """As `ast.parse`, one text at a time.

    Python 3.11 before 3.11.8 counts the depth of all threads' trees in one place and may raise a SystemError about any
    text while another thread parses one (python/cpython issue 106905).
    """
    if source.count("{") * len(source) > _MOST_FIELDS:
        raise ValueError("too many braces for Python's parser")
    with _PARSER:
        return ast.parse(source, mode=mode)
