"""Whether a kernel's forward is the reference's own: the same steps whatever the names, annotations and layout."""

import ast
from collections.abc import Iterator

from kbevolve.evaluators.lint.meaning import Meaning
from kbevolve.evaluators.lint.scopes import Scope, Scopes
from kbevolve.evaluators.lint.values import Named


def contains_copy(tree: ast.Module, reference: ast.Module) -> bool:
    """Whether some class of the kernel has the forward of a class of the reference."""
    originals = {tuple(steps) for steps in _forwards(reference)}
    return any(tuple(steps) in originals for steps in _forwards(tree))


def _forwards(tree: ast.Module) -> Iterator[list[str]]:
    scopes = Scopes(tree)
    meaning = Meaning(scopes)
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            for member in node.body:
                if isinstance(member, ast.FunctionDef) and member.name == "forward":
                    yield _steps(member, scopes.by_node[member], meaning)


def _steps(forward: ast.FunctionDef, scope: Scope, meaning: Meaning) -> list[str]:
    """The function's nodes in order; its own variables numbered, imported names written out, annotations left out."""
    numbers: dict[str, int] = {}
    steps: list[str] = []
    for argument in [*forward.args.posonlyargs, *forward.args.args, *forward.args.kwonlyargs]:
        numbers[argument.arg] = len(numbers)
    stack: list[ast.AST] = [node for node in reversed(forward.body) if not _is_note(node)]
    while stack:
        node = stack.pop()
        match node:
            case ast.Name() | ast.Attribute(ctx=ast.Load()):
                named = [value.name for value in meaning.of(node, scope) if isinstance(value, Named)]
                # Methods of tensors stay as they are: their receivers matter.
                if len(named) == 1 and not named[0].startswith("torch.Tensor."):
                    steps.append(named[0])
                    continue
                if isinstance(node, ast.Name):
                    known = node.id in numbers or isinstance(node.ctx, ast.Store)
                    steps.append(str(numbers.setdefault(node.id, len(numbers))) if known else node.id)
                    continue
                steps.append(f".{node.attr}")
            case ast.Constant(value=value):
                steps.append(repr(value)[:200])
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                steps.append("Assign")
                stack += [value, target]
                continue
            case ast.keyword(arg=name):
                steps.append(f"{name}=")
            case ast.expr_context():
                continue
            case _:
                steps.append(type(node).__name__)
        stack.extend(reversed(list(ast.iter_child_nodes(node))))
    return steps


def _is_note(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
