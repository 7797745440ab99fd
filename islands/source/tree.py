"""Reading Python syntax trees: the functions and the strings among their statements, and what each node binds."""

import ast
from collections.abc import Iterator, Sequence

#: A function, whose body has variables of its own.
Function = ast.FunctionDef | ast.AsyncFunctionDef


def with_line_feeds(source: str) -> str:
    """The text with one kind of line end."""
    return source.replace("\r\n", "\n").replace("\r", "\n")


def outermost_functions(node: ast.AST) -> Iterator[Function]:
    """The functions that are in no other function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            yield child
        else:
            yield from outermost_functions(child)


def nodes_of(body: Sequence[ast.stmt]) -> list[ast.AST]:
    """These statements and all nodes below them."""
    return [node for statement in body for node in ast.walk(statement)]


def is_string(statement: ast.AST) -> bool:
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
        case ast.expr() | ast.keyword():
            return ()
        case ast.arg(arg=name):
            return (name,)
        case ast.alias(name=name, asname=other):
            return (other or name.partition(".")[0],)
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            return names
    # def, class, except as, case as, case *rest, case {**rest}
    return [found for field in ("name", "rest") if isinstance(found := getattr(node, field, None), str)]
