"""The part of a source that is really compiled, as two plain texts: Python and native (C++ or CUDA).

Kernels carry switches (``#define PACK 0``, ``USE_TMA = 0``) whose branches stand in the source whether they are
on or off. Descriptors must see only what runs, so branches that the file's own constants decide are dropped here;
what they do not decide stays in. Comments and docstrings are dropped too: words about an optimisation are not one.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from kbevolve.islands.source.local_names import in_order
from kbevolve.islands.source.statements import pieces

#: A string that holds native code rather than a name or a message: several lines with a statement.
_NATIVE = re.compile(r"\n.*[;{]", re.DOTALL)
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else|endif|define|undef)\b(.*)$")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_DEFINED = re.compile(r"defined\s*\(?\s*(\w+)\s*\)?")
_INTEGER = re.compile(r"[-+]?\d+$")


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveText:
    """What is compiled of one kernel file."""

    #: Python code without comments, docstrings and native strings.
    python: str
    #: Native code of all strings, without comments and without branches switched off.
    native: str


def live_text(source: str) -> LiveText:
    """Split a kernel file and drop what its own constants switch off. Text that is not Python is all native."""
    try:
        return _split(source)
    except SystemError:  # another thread parsed beside this one (`configs.syntax`, which nothing here may import)
        return _split(source)


def _split(source: str) -> LiveText:
    try:
        try:
            return _put_together(pieces(source))
        except SyntaxError:
            return _put_together([source])
    except SyntaxError:
        return LiveText(python="", native=_preprocess(source))
    except RecursionError:  # a sum of hundreds of strings; it may be a correct kernel, and is seen as it stands
        return LiveText(python=source, native=_preprocess(source))


def _put_together(texts: Sequence[str]) -> LiveText:
    """What is compiled of a file in pieces that are Python each."""
    constants = {name: value for text in texts for name, value in _switches(text).constants}
    shown = [
        _shown(text, tuple((name, constants[name]) for name in _switches(text).asked if name in constants))
        for text in texts
    ]
    return LiveText(
        python="\n".join(text.python for text in shown), native="\n".join(text.native for text in shown if text.native)
    )


@dataclass(frozen=True, slots=True)
class _Switches:
    """What a piece has to do with switches."""

    #: Constants ``NAME = integer`` of the module.
    constants: tuple[tuple[str, int], ...]
    #: Names in its conditions, in order.
    asked: tuple[str, ...]


@lru_cache(maxsize=1024)
def _switches(text: str) -> _Switches:
    tree = ast.parse(text)
    tests = [node.test for node in in_order(tree) if isinstance(node, ast.If)]
    return _Switches(
        tuple(_integers(tree.body)), tuple(sorted({node.id for node in in_order(*tests) if isinstance(node, ast.Name)}))
    )


@lru_cache(maxsize=1024)
def _shown(text: str, constants: tuple[tuple[str, int], ...]) -> LiveText:
    """What is compiled of a piece, for these values of the constants that its conditions ask for."""
    tree = ast.parse(text)
    _drop_dead_branches(tree.body, dict(constants))
    native = _take_native(tree)
    return LiveText(python=ast.unparse(tree), native="\n".join(map(_preprocess, native)))


def _integers(body: Iterable[ast.stmt]) -> Iterator[tuple[str, int]]:
    """Module constants ``NAME = integer``."""
    for node in body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, int):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield target.id, int(node.value.value)


# The two functions below look at statements and at strings only, in place, and take a third of the time that node
# transformers take.


def _drop_dead_branches(body: list[ast.stmt], constants: Mapping[str, int]) -> None:
    """Drop the branches of ``if`` that module constants decide, and what stands alone as a string: a docstring.

    A Triton kernel takes its switches as constexpr arguments of the same name as the constant, in our seeds and in
    most code that models write, so a name inside a function counts as the constant.
    """
    kept: list[ast.stmt] = []
    for statement in body:
        for nested in _bodies(statement):
            _drop_dead_branches(nested, constants)
        if isinstance(statement, ast.If) and (value := _evaluate(statement.test, constants)) is not None:
            kept += (statement.body if value else statement.orelse) or [ast.Pass()]
        elif isinstance(statement, ast.Expr) and _is_text(statement.value):
            kept.append(ast.Pass())
        else:
            kept.append(statement)
    body[:] = kept


def _bodies(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The lists of statements that a statement holds."""
    for name in ("body", "orelse", "finalbody"):
        nested = getattr(statement, name, None)
        if nested:
            yield nested
    for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield part.body


def _take_native(tree: ast.Module) -> list[str]:
    """Empty the native strings of a tree; what they held, in the order of the file."""
    found = [node for node in in_order(tree) if isinstance(node, ast.Constant) and _is_native(node)]
    found.sort(key=lambda node: (node.lineno, node.col_offset))
    texts = [str(node.value) for node in found]
    for node in found:
        node.value = ""
    return texts


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_native(node: ast.Constant) -> bool:
    return isinstance(node.value, str) and bool(_NATIVE.search(node.value))


def _preprocess(text: str) -> str:
    """A small C preprocessor: conditions over integer ``#define``s of this text are decided, others keep both sides."""
    defines: dict[str, int] = {}
    kept: list[str] = []
    # One entry per open #if: (lines are live here, some branch was taken already, the condition was decided).
    stack: list[tuple[bool, bool, bool]] = []
    for line in _COMMENT.sub("", text).split("\n"):
        match = _DIRECTIVE.match(line)
        if match is None:
            if all(live for live, _, _ in stack):
                kept.append(line)
            continue
        word, rest = match.group(1), match.group(2).strip()
        value: int | None
        if word in ("if", "ifdef", "ifndef"):
            value = _condition(word, rest, defines)
            stack.append((value is None or bool(value), bool(value), value is not None))
        elif word in ("elif", "else") and stack:
            _, taken, decided = stack.pop()
            value = (1 if word == "else" else _condition("if", rest, defines)) if decided else None
            stack.append((value is None or (bool(value) and not taken), taken or bool(value), decided))
        elif word == "endif" and stack:
            stack.pop()
        elif word == "define" and all(live for live, _, _ in stack):
            name, _, value_text = rest.partition(" ")
            if _INTEGER.match(value_text.strip()):
                defines[name] = int(value_text)
            kept.append(line)
    return "\n".join(kept)


def _condition(word: str, text: str, defines: Mapping[str, int]) -> int | None:
    """Value of a condition, None when it rests on names that this text does not define as integers."""
    if word != "if":
        known = text in defines
        return None if not known else int(known == (word == "ifdef"))
    text = _DEFINED.sub(lambda match: "1" if match.group(1) in defines else match.group(1), text)
    text = text.replace("&&", " and ").replace("||", " or ")
    text = re.sub(r"!(?!=)", " not ", text)
    try:
        return _evaluate(ast.parse(text.strip(), mode="eval").body, defines)
    except SyntaxError:
        return None


def _evaluate(node: ast.expr, names: Mapping[str, int]) -> int | None:
    """Value of an integer expression of names, comparisons, and/or/not, arithmetic; None when it is anything else."""
    match node:
        case ast.Constant(value=int(number)):
            return int(number)
        case ast.Name(id=name):
            return names.get(name)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            value = _evaluate(operand, names)
            return None if value is None else int(not value)
        case ast.BoolOp(op=op, values=values):
            return _boolean(op, [_evaluate(value, names) for value in values])
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _arithmetic(type(op), _evaluate(left, names), _evaluate(right, names))
        case ast.BinOp(left=left, op=op, right=right):
            return _arithmetic(type(op), _evaluate(left, names), _evaluate(right, names))
    return None


def _boolean(op: ast.boolop, values: list[int | None]) -> int | None:
    decisive = 0 if isinstance(op, ast.And) else 1
    if any(value is not None and bool(value) == bool(decisive) for value in values):
        return decisive
    return None if None in values else 1 - decisive


def _arithmetic(op: type[ast.AST], left: int | None, right: int | None) -> int | None:
    if left is None or right is None or (op in (ast.Div, ast.FloorDiv, ast.Mod) and right == 0):
        return None
    table: dict[type[ast.AST], int] = {
        ast.Eq: left == right,
        ast.NotEq: left != right,
        ast.Lt: left < right,
        ast.LtE: left <= right,
        ast.Gt: left > right,
        ast.GtE: left >= right,
        ast.Add: left + right,
        ast.Sub: left - right,
        ast.Mult: left * right,
    }
    if op in (ast.Div, ast.FloorDiv):
        return left // right
    if op is ast.Mod:
        return left % right
    return None if op not in table else int(table[op])
