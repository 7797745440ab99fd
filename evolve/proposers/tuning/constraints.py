"""Conditions between tunables that a kernel declares, so that no evaluation goes to values that cannot matter.

A comment of its own line states one, in Python's arithmetic over the names of tunables. Without names before `if` it
says which values fit together; with names, when those tunables have an effect::

    # tune if: BLOCK_M * BLOCK_N * STAGES <= 49152
    // tune if: VECTOR == 4 or UNROLL > 1
    # tune SPLIT_N, SPLIT_K if: PRODUCT_0 or PRODUCT_1

A model writes them, so nothing is run: numbers, names, `+ - * // %`, comparisons, `and`, `or` and `not` are
interpreted, and a condition with anything else holds always.
"""

import ast
import operator
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from kbevolve.configs.syntax import expression

#: A longer condition is not read: its cost must not depend on who wrote it.
_LONGEST = 400
_CONDITION = re.compile(
    r"^[ \t]*(?:\#|//)[ \t]*tune[ \t]+(?:(?P<names>\w[\w, \t]*?)[ \t]+)?if:[ \t]*(?P<condition>[^\n]+)$", re.MULTILINE
)

_BINARY: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip


def fits(source: str, values: Mapping[str, str]) -> bool:
    """Whether these values of a kernel's tunables meet all of its conditions."""
    conditions = [condition for names, condition in _conditions(source) if not names]
    known = _numbers(values) if conditions else {}
    return all(_holds(condition, known) for condition in conditions)


def idle(source: str, values: Mapping[str, str]) -> frozenset[str]:
    """The tunables that have no effect beside these values of the others; in later conditions they count as 0."""
    conditions = [(names, condition) for names, condition in _conditions(source) if names]
    known, found = _numbers(values) if conditions else {}, set[str]()
    for names, condition in conditions:
        if not _holds(condition, known):
            found.update(names)
            known |= dict.fromkeys(names, 0)
    return frozenset(found & values.keys())


def _numbers(values: Mapping[str, str]) -> dict[str, int | str]:
    return {name: _number_or_word(value) for name, value in values.items()}


@lru_cache(maxsize=4096)
def _number_or_word(value: str) -> int | str:
    return int(value) if re.fullmatch(r"-?\d{1,18}", value) else value


@lru_cache(maxsize=4096)
def _conditions(source: str) -> tuple[tuple[tuple[str, ...], ast.expr], ...]:
    """The tunables that each condition is about, none for one about all, and the condition."""
    found = []
    for match in _CONDITION.finditer(source):
        try:
            if len(match["condition"]) <= _LONGEST:
                names = tuple(re.findall(r"\w+", match["names"] or ""))
                found.append((names, expression(match["condition"].strip())))
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
