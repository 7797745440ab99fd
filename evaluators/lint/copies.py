"""Whether a kernel's forward is the reference's own: the same steps whatever the names, annotations and layout."""

import ast
from collections.abc import Iterator

from kbevolve.evaluators.lint.python_names import PythonNames
from kbevolve.evaluators.lint.python_scopes import NameScope, PythonScopes


def contains_copy(tree: ast.Module, reference: ast.Module) -> bool:
    """Whether some class of the kernel has the forward of a class of the reference."""
    originals = list(_forwards(reference))
    return any(steps in originals for steps in _forwards(tree))


def _forwards(tree: ast.Module) -> Iterator[list[str]]:
    scopes = PythonScopes(tree)
    names = PythonNames(scopes)
    for node in tree.body:
        for member in node.body if isinstance(node, ast.ClassDef) else []:
            if isinstance(member, ast.FunctionDef) and member.name == "forward":
                yield list(_steps(member, scopes.by_node[member], names))


def _steps(forward: ast.FunctionDef, scope: NameScope, names: PythonNames) -> Iterator[str]:
    """The function's nodes in order: its own variables numbered, imported names written out, annotations left out."""
    numbers: dict[str, int] = {argument.arg: number for number, argument in enumerate(forward.args.args)}
    stack: list[ast.AST] = list(reversed(forward.body))
    while stack:
        node = stack.pop()
        below = [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr_context)]
        match node:
            case ast.Expr(value=ast.Constant()):
                continue
            # Methods of tensors stay as they are: their receivers matter.
            case ast.Name() | ast.Attribute() if meant := [
                name for name in names.names(node, scope) if not name.endswith("()") and name[:13] != "torch.Tensor."
            ]:
                yield meant[0]
                continue
            case ast.Name(id=name) if name in numbers or isinstance(node.ctx, ast.Store):
                yield str(numbers.setdefault(name, len(numbers)))
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                below = [ast.Assign([target], value)]
            case _:
                own = [getattr(node, name, None) for name in ("id", "attr", "arg", "value")]
                yield f"{type(node).__name__} {[text for text in own if not isinstance(text, ast.AST)]}"
        stack.extend(reversed(below))
