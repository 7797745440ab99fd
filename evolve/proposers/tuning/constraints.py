"""Conditions between tunables that a kernel declares, so that no evaluation goes to values that do not fit together.

A comment of its own line states one, in Python's arithmetic over the names of tunables::

    # tune if: BLOCK_M * BLOCK_N * STAGES <= 49152
    // tune if: VECTOR == 4 or UNROLL > 1

A model writes them, so nothing is run: numbers, names, `+ - * // %`, comparisons, `and`, `or` and `not` are
interpreted, and a condition with anything else holds always.
"""

import ast
import operator
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

#: A longer condition is not read: its cost must not depend on who wrote it.
_LONGEST = 200
_CONDITION = re.compile(r"^[ \t]*(?:\#|//)[ \t]*tune[ \t]+if:[ \t]*([^\n]+)$", re.MULTILINE)

_BINARY: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip


def fits(source: str, values: Mapping[str, str]) -> bool:
    """Whether these values of a kernel's tunables meet all of its conditions."""
    known = {name: int(value) if re.fullmatch(r"-?\d{1,18}", value) else value for name, value in values.items()}
    return all(_holds(condition, known) for condition in _conditions(source))


@lru_cache(maxsize=4096)
def _conditions(source: str) -> tuple[ast.expr, ...]:
    found = []
    for match in _CONDITION.finditer(source):
        try:
            if len(match[1]) <= _LONGEST:
                found.append(ast.parse(match[1].strip(), mode="eval").body)
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            continue
    return tuple(found)


def _holds(condition: ast.expr, known: Mapping[str, int | str]) -> bool:
    try:
        return bool(_value(condition, known))
    except (KeyError, TypeError, ArithmeticError, RecursionError):
        return True


def _value(node: ast.expr, known: Mapping[str, int | str]) -> Any:
    match node:
        case ast.Constant(value=int() | str() as value):
            return value
        case ast.Name(id=name):
            return known[name]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _value(operand, known)
        case ast.BoolOp(op=op, values=parts):
            return (all if isinstance(op, ast.And) else any)(_value(part, known) for part in parts)
        case ast.BinOp(left=left, op=op, right=right):
            return _BINARY[type(op)](_number(left, known), _number(right, known))
        case ast.Compare(left=left, ops=ops, comparators=others):
            sides = [_value(side, known) for side in (left, *others)]
            return all(_BINARY[type(op)](*pair) for op, *pair in zip(ops, sides, sides[1:], strict=False))
    raise TypeError("not a condition of numbers and names")


def _number(node: ast.expr, known: Mapping[str, int | str]) -> int:
    """An operand of arithmetic; a word times a large number would fill the memory."""
    value = _value(node, known)
    if isinstance(value, str):
        raise TypeError("a word has no arithmetic")
    return int(value)
