"""A problem's file: its names when it is run; as text, `Model` renamed to `ModelNew`, with its own forward or another.

Texts are edited line by line, never unparsed, so that comments and layout stay as the author wrote them.
"""

import ast
import os
import re
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from kbevolve.configs.syntax import parse

#: Functions and constants of a problem file that a kernel file lacks.
_ASKING = ("get_inputs", "get_init_inputs", "CPU_SIZES")
#: The name of a problem's file as a module.
_NAME = "reference"


def names_of(source: str, file: str | Path = "reference.py") -> dict[str, Any]:
    """Run a problem's file: what it defines, by name. It is trusted; what it raises is not caught.

    Args:
        source: its text.
        file: its path, for tracebacks.
    """
    _refuse_exits()
    names: dict[str, Any] = {"__name__": _NAME}
    exec(compile(source, str(file), "exec"), names)
    return names


@cache
def _refuse_exits() -> None:
    """Let ``os._exit`` raise where a problem's file calls it: it would end kbevolve without a word."""
    end = os._exit

    def exit_unless_asked_by_a_problem(status: int) -> NoReturn:
        if sys._getframe(1).f_globals.get("__name__") == _NAME:
            raise RuntimeError(f"it calls os._exit({status}), which would end kbevolve")
        end(status)

    os._exit = exit_unless_asked_by_a_problem


def as_model_new(source: str) -> str:
    """The problem's file as a self-contained kernel file that computes what the reference computes.

    Class `Model` becomes `ModelNew` wherever it is named; `get_inputs`, `get_init_inputs`, `CPU_SIZES` and a
    ``if __name__ == "__main__"`` block go; constants, imports, other functions and classes stay.
    """
    return as_class(source, "ModelNew")


def as_class(source: str, name: str) -> str:
    """As `as_model_new`, with a class of this name."""
    kept = without(source, [node for node in parse(source).body if _asks(node)])
    return _renamed(kept, "Model", name)


def with_forward(source: str, body: str, *, decorator: str = "") -> str:
    """A kernel file whose `ModelNew` has the same constructor and the given statements as its whole forward.

    Args:
        source: a file with a class `ModelNew`, as `as_model_new` gives it.
        body: one or more lines, not indented.
        decorator: one line without the ``@``, "" for none.
    """
    forward = _forward(source, "ModelNew")
    lines = source.split("\n")
    assert forward.end_lineno is not None, "parsed from text"
    first = min([forward.lineno, *(node.lineno for node in forward.decorator_list)])
    returns = f" -> {ast.unparse(forward.returns)}" if forward.returns else ""
    indent = " " * forward.col_offset
    lines[first - 1 : forward.end_lineno] = [
        *([f"{indent}@{decorator}"] if decorator else []),
        f"{indent}def forward({ast.unparse(forward.args)}){returns}:",
        *(f"{indent}    {line}" for line in body.split("\n")),
    ]
    return "\n".join(lines)


def without_head(source: str) -> tuple[str, str]:
    """The ``from __future__`` imports of a file, which only stand at its top, and the rest without its docstring."""
    body = parse(source).body
    imports = [node for node in body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    notes = [node for node in body if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    return "".join(f"{ast.unparse(node)}\n" for node in imports), without(source, [*imports, *notes])


def replaced(source: str, places: Iterable[tuple[int, int, int, str]]) -> str:
    """The text with parts of lines replaced: for each the line and column of `ast`, bytes to drop, and a new text."""
    lines = source.encode().split(b"\n")  # bytes, as columns of `ast` count them
    for line, column, dropped, text in sorted(places, reverse=True):
        before = lines[line - 1]
        lines[line - 1] = before[:column] + text.encode() + before[column + dropped :]
    return b"\n".join(lines).decode()


def forward_arguments(source: str) -> tuple[str, ...]:
    """The names of the arguments that the `forward` of a problem's `Model` takes, without self, ``*`` and ``**``."""
    arguments = _forward(source, "Model").args
    return tuple(one.arg for one in (*arguments.posonlyargs, *arguments.args[1:], *arguments.kwonlyargs))


def without(source: str, statements: Sequence[ast.stmt]) -> str:
    """The text without these top-level statements, the comments right above them, and the blank lines they leave."""
    lines: list[str | None] = list(source.split("\n"))
    for node in statements:
        decorators = [decorator.lineno for decorator in getattr(node, "decorator_list", [])]
        first = min([node.lineno, *decorators]) - 1
        while first > 0 and (lines[first - 1] or "").startswith("#"):
            first -= 1
        for row in range(first, node.end_lineno or node.lineno):
            lines[row] = None
    text = "\n".join(line for line in lines if line is not None)
    return re.sub(r"\n{4,}", "\n\n\n", text).strip() + "\n"


def _asks(node: ast.stmt) -> bool:
    match node:
        case ast.FunctionDef(name=name):
            return name in _ASKING
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name in _ASKING
        case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
            return True
    return False


def _renamed(source: str, old: str, new: str) -> str:
    """The text with a top-level class renamed, where it is defined and wherever it is read."""
    lines = source.encode().split(b"\n")
    tree = parse(source)
    places = [
        (node.lineno, node.col_offset, len(old), new)
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and node.id == old and isinstance(node.ctx, ast.Load)
    ]
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == old:
            column = lines[node.lineno - 1].index(old.encode(), len("class "))
            places.append((node.lineno, column, len(old), new))
    return replaced(source, places)


def _forward(source: str, model: str) -> ast.FunctionDef:
    for node in parse(source).body:
        if isinstance(node, ast.ClassDef) and node.name == model:
            for member in node.body:
                if isinstance(member, ast.FunctionDef) and member.name == "forward":
                    return member
    raise ValueError(f"no class {model} with a forward of its own")
