"""The part of a kernel file that is really compiled, as two plain texts: Python and native (C++ or CUDA).

Kernels carry switches (``#define PACK 0``, ``USE_TMA = 0``), and the source holds both branches of each. Niches must
see only what runs, so branches that the file's own constants switch off are dropped; undecided branches stay. Comments
and docstrings are dropped too: words about an optimisation are not one.
"""

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kbevolve.configs.syntax import expression, parse
from kbevolve.islands.source.tree import (
    MOST_READ,
    blocks_of,
    cached,
    is_string,
    nodes_of,
    statements_of,
    with_line_feeds,
)

_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else|endif|define|undef)\b(.*)$")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_DEFINED = re.compile(r"defined\s*\(?\s*(\w+)\s*\)?")
_INTEGER = re.compile(r"[-+]?\d{1,18}$")
#: A preprocessor's integers, and characters of a condition.
_LARGEST = 1 << 64
_MOST_CONDITION = 500
#: Arithmetic that conditions are evaluated with; no powers and shifts, whose values have no limit.
_OPERATIONS: Mapping[type[ast.AST], Callable[[int, int], int]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveCode:
    """What is compiled of one kernel file."""

    #: Python code without comments, docstrings and native strings.
    python: str
    #: Native code of all strings, without comments and without branches switched off.
    native: str


def active_code(source: str) -> ActiveCode:
    """Split a kernel file and drop what its own constants switch off. Text that is not Python is all native."""
    source = with_line_feeds(source)
    if len(source) > MOST_READ:
        return ActiveCode(python=source, native=_preprocessed(source))
    try:
        statements = statements_of(source)
        constants = dict(pair for text in statements for pair in _constants(text))
        parts = [
            _active_part(text, tuple((name, value) for name, value in constants.items() if name in text))
            for text in statements
        ]
    except SyntaxError:
        return ActiveCode(python="", native=_preprocessed(source))
    except (ValueError, RecursionError, MemoryError):  # a sum of hundreds of strings may be a correct kernel
        return ActiveCode(python=source, native=_preprocessed(source))
    native = "\n".join(part.native for part in parts if part.native)
    return ActiveCode(python="\n".join(part.python for part in parts), native=native)


@cached(1024)
def _constants(text: str) -> tuple[tuple[str, int], ...]:
    """Module constants ``NAME = integer``."""
    return tuple(
        (target.id, int(node.value.value))
        for node in parse(text).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, int)
        for target in node.targets
        if isinstance(target, ast.Name)
    )


@cached(1024)
def _active_part(text: str, constants: tuple[tuple[str, int], ...]) -> ActiveCode:
    """What is compiled of one statement, with the constants that it may mention."""
    tree = parse(text)
    _drop_dead_branches(tree.body, dict(constants))
    strings = [node for node in nodes_of(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    found = [node for node in strings if _is_native(str(node.value))]
    native = "\n".join(_preprocessed(str(node.value)) for node in found)
    for node in found:
        node.value = ""
    return ActiveCode(python=ast.unparse(tree), native=native)


def _is_native(text: str) -> bool:
    """Whether a string holds native code, not a name or a message: several lines with a statement."""
    below = text.partition("\n")[2]
    return ";" in below or "{" in below


def _drop_dead_branches(block: list[ast.stmt], constants: Mapping[str, int]) -> None:
    """Drop docstrings and the branches of ``if`` that module constants decide.

    A Triton kernel takes its switches as constexpr arguments of the same name as the constant, in our seeds and in
    most code that models write, so a name inside a function counts as the constant.
    """
    kept: list[ast.stmt] = []
    for statement in block:
        for nested in blocks_of(statement):
            _drop_dead_branches(nested, constants)
        if isinstance(statement, ast.If) and (value := _value(statement.test, constants)) is not None:
            kept += (statement.body if value else statement.orelse) or [ast.Pass()]
        else:
            kept.append(ast.Pass() if is_string(statement) else statement)
    block[:] = kept


def _preprocessed(text: str) -> str:
    """A small C preprocessor: conditions over integer ``#define``s of this text are decided, others keep both sides."""
    defines: dict[str, int] = {}
    kept: list[str] = []
    # One entry for each open #if: (lines are active here, some branch was taken already, the condition was decided).
    stack: list[tuple[bool, bool, bool]] = []
    inactive = 0
    for line in _COMMENT.sub("", text).split("\n"):
        word, rest = found.groups() if (found := _DIRECTIVE.match(line)) else ("", line)
        if word in ("if", "ifdef", "ifndef"):
            value = _condition(word, rest.strip(), defines)
            stack.append((value != 0, bool(value), value is not None))
            inactive += value == 0
        elif word in ("elif", "else") and stack:
            active, taken, decided = stack.pop()
            inactive -= not active
            value = (1 if word == "else" else _condition("if", rest, defines)) if decided else None
            active = value is None or (value != 0 and not taken)
            stack.append((active, taken or bool(value), decided))
            inactive += not active
        elif word == "endif" and stack:
            inactive -= not stack.pop()[0]
        elif word in ("", "define") and not inactive:
            name, _, number = rest.strip().partition(" ")
            if word and _INTEGER.match(number.strip()):
                defines[name] = int(number)
            kept.append(line)
    return "\n".join(kept)


def _condition(word: str, text: str, defines: Mapping[str, int]) -> int | None:
    """Value of a condition; None where it rests on names that this text does not define as integers."""
    if word != "if":
        return int(word == "ifdef") if text in defines else None
    text = _DEFINED.sub(lambda found: "1" if found[1] in defines else found[1], text)
    text = re.sub(r"!(?!=)", " not ", text.replace("&&", " and ").replace("||", " or "))
    try:
        return _value(expression(text.strip()), defines) if len(text) <= _MOST_CONDITION else None
    except (SyntaxError, ValueError, RecursionError, MemoryError, SystemError):
        return None


def _value(node: ast.expr, names: Mapping[str, int]) -> int | None:
    """Value of an integer expression of names, comparisons, and/or/not, arithmetic; None for anything else."""
    match node:
        case ast.Constant(value=int(number)):
            return int(number) if number <= _LARGEST else None
        case ast.Name(id=name):
            return names.get(name)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            value = _value(operand, names)
            return None if value is None else int(not value)
        case ast.BoolOp(op=op, values=values):
            decisive, found = int(isinstance(op, ast.Or)), [_value(value, names) for value in values]
            if any(value is not None and bool(value) == decisive for value in found):
                return decisive
            return None if None in found else 1 - decisive
        case ast.Compare(left=left, ops=[op], comparators=[right]) | ast.BinOp(left=left, op=op, right=right):
            one, other, act = _value(left, names), _value(right, names), _OPERATIONS.get(type(op))
            if one is None or other is None or act is None or (act in (operator.floordiv, operator.mod) and not other):
                return None
            value = int(act(one, other))
            return value if abs(value) <= _LARGEST else None
    return None
