"""Reading Python files: their outermost statements; the nodes of a syntax tree, its blocks, what each node binds."""

import ast
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TypeVar

from kbevolve.configs.syntax import parse

#: Characters of a file whose syntax is read here; a longer one counts as it is.
MOST_READ = 100_000
#: Characters of a statement that caches keep: its text, or one for each version of a kernel, would fill the memory.
_MOST_KEPT = 10_000
_Read = TypeVar("_Read")

#: A function, whose body has variables of its own.
Function = ast.FunctionDef | ast.AsyncFunctionDef
#: Fields that hold no nodes of interest: whether a name is read or assigned follows from its place.
_SKIPPED = frozenset(("ctx", "op", "ops", "kind", "type_comment", "id", "attr"))


#: A text in three quotes: no statement begins at one of its lines.
_QUOTED = re.compile(r'"""(?:[^\\]|\\.)*?(?:"""|\\?\Z)|' r"'''(?:[^\\]|\\.)*?(?:'''|\\?\Z)", re.DOTALL)
#: The end of a line, where the next one may begin an outermost statement: it is not indented and continues none.
_BEFORE = re.compile(r"\n(?=@|(?!(?:elif|else|except|finally)\b)[^\W\d])")


def cached(count: int) -> Callable[[Callable[..., _Read]], Callable[..., _Read]]:
    """As `lru_cache`, for functions of a statement's text; nothing is kept of a long one."""

    def decorate(function: Callable[..., _Read]) -> Callable[..., _Read]:
        kept = lru_cache(maxsize=count)(function)
        return lambda text, *others: (kept if len(text) <= _MOST_KEPT else function)(text, *others)

    return decorate


@lru_cache(maxsize=4)
def statements_of(source: str) -> tuple[str, ...]:
    """The text of each outermost statement; the whole text where two are on one line.

    Most statements of a new kernel are those of its parent. They are found by their text, so that a statement which was
    parsed for the parent is not parsed again: parsing whole files took a third of the engine's time for a kernel
    (docs/decisions.md).

    Raises:
        SyntaxError: it is no Python. `ast.parse` names other errors.
    """
    cut = _cut(source)
    # A cut may lie within a statement. Then the text before it is no Python: it ends in a string, in brackets or with
    # a backslash, or has a decorator without a function.
    return cut if all(map(_is_python, cut)) else _parsed_statements(source)


def _cut(source: str) -> tuple[str, ...]:
    quoted = [found.span() for found in _QUOTED.finditer(source)]
    starts = [0, *(found.end() for found in _BEFORE.finditer(source))]
    begins = [begin for begin, _ in quoted]
    before = [bisect_left(begins, at) - 1 for at in starts]
    free = [at for at, last in zip(starts, before, strict=True) if last < 0 or at >= quoted[last][1]]
    cuts = [at for last, at in pairwise(free) if source[last] != "@"]
    return tuple(source[start:end] for start, end in pairwise((0, *cuts, len(source))) if start < end)


@cached(2048)
def _is_python(text: str) -> bool:
    try:
        parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _parsed_statements(source: str) -> tuple[str, ...]:
    body = parse(source).body
    starts = [min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))]) - 1 for node in body]
    if len(set(starts)) < len(starts):
        return (source,)
    lines = source.split("\n")
    return tuple("\n".join(lines[start:end]) for start, end in pairwise((*starts, len(lines))))


def with_line_feeds(source: str) -> str:
    """The text with one kind of line end."""
    return source.replace("\r\n", "\n").replace("\r", "\n")


def nodes_of(*roots: ast.AST) -> list[ast.AST]:
    """These nodes and all below them, in the order of the text, without operators and contexts (`ast.Load`)."""
    # A third of the time of `ast.walk`, and each new kernel takes it several times.
    found: list[ast.AST] = []
    waiting: list[object] = list(reversed(roots))
    while waiting:
        one = waiting.pop()
        if isinstance(one, ast.AST):
            found.append(one)
            waiting += [getattr(one, name, None) for name in _fields_with_nodes(one._fields)]
        elif isinstance(one, list):
            waiting += reversed(one)
    return found


@lru_cache(maxsize=256)
def _fields_with_nodes(fields: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in reversed(fields) if name not in _SKIPPED)


def blocks_of(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """The lists of statements that a module or a statement holds, none of them empty."""
    for name in ("body", "orelse", "finalbody"):
        if block := getattr(node, name, None):
            yield block
    for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield part.body


def is_string(statement: ast.stmt) -> bool:
    """Whether a statement is a string: a docstring, or without effect."""
    match statement:
        case ast.Expr(value=ast.Constant(value=str())):
            return True
    return False


def bound_by(node: ast.AST) -> Sequence[str]:
    """Names that a node binds or declares: variables, parameters, functions, classes, imports, ``global``."""
    match node:
        case ast.Name(id=name):
            return () if isinstance(node.ctx, ast.Load) else (name,)
        case ast.expr() | ast.keyword():  # most of a file: before the other cases
            return ()
        case ast.arg(arg=name):
            return (name,)
        case ast.alias(name=name, asname=other):
            return (other or name.partition(".")[0],)
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            return names
    # def, class, except as, case as, case *rest, case {**rest}
    return [found for field in ("name", "rest") if isinstance(found := getattr(node, field, None), str)]
