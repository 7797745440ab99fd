"""Questions about a piece of syntax by itself."""

import ast
import warnings
from collections.abc import Iterable

from kbevolve.configs.syntax import parse


def decorators(node: ast.AST) -> list[ast.expr]:
    """The decorators of a function or class, none of anything else."""
    return getattr(node, "decorator_list", [])


def parsed(source: str) -> ast.Module | None:
    """The syntax tree of a text, None when it is no Python. What Python would warn of is not our affair."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


#: Annotations of what is no tensor.
_PLAIN_TYPES = frozenset({"int", "float", "bool", "str", "tuple", "dict"})


def annotated_as_tensor(argument: ast.arg) -> bool | None:
    """Whether an annotation says that the argument is a tensor, or is none; None when it says neither."""
    if argument.annotation is None:
        return None
    for node in ast.walk(argument.annotation):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Constant(value=str() as name):
                if "Tensor" in name:
                    return True
    match argument.annotation:
        case ast.Name(id=name) if name in _PLAIN_TYPES:
            return False
    return None


def has_plain_default(function: ast.FunctionDef | ast.AsyncFunctionDef, index: int) -> bool:
    """Whether the parameter defaults to a number or the like, so that it is no tensor."""
    positional = len(function.args.posonlyargs) + len(function.args.args)
    place = index - (positional - len(function.args.defaults))
    if not 0 <= place < len(function.args.defaults):
        return False
    default = function.args.defaults[place]
    return not (isinstance(default, ast.Constant) and default.value is None)


def returned(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterable[ast.expr]:
    """The values that a function returns itself, not those of functions in it."""
    stack: list[ast.AST] = list(function.body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Return) and node.value is not None:
            yield node.value
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef | ast.expr):
            stack.extend(ast.iter_child_nodes(node))


def chain(node: ast.BinOp) -> list[ast.expr]:
    """The members of ``a + b + c + …``, without recursion: a source may be written in a thousand parts."""
    members: list[ast.expr] = []
    left: ast.expr = node
    while isinstance(left, ast.BinOp) and isinstance(left.op, ast.Add):
        members.append(left.right)
        left = left.left
    return [left, *reversed(members)]


def code_of(node: ast.expr) -> int | None:
    """A character code written as a number."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and 0 <= node.value < 0x110000:
        return node.value
    return None
