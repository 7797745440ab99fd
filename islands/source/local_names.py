"""Which names of a file are local variables, that nobody outside a function can see, and which are anything else."""

import ast
import builtins
import re
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache

BUILTINS = frozenset(dir(builtins))
_WORD = re.compile(r"[^\W\d]\w*")
#: Fields that hold no node but marks: whether a name is read or written follows from where it stands.
_MARKS = frozenset(("ctx", "op", "ops", "kind", "type_comment", "id", "attr"))
#: A function, whose body has variables of its own.
Function = ast.FunctionDef | ast.AsyncFunctionDef


def words_of(text: str) -> list[str]:
    """What may be a name in a text."""
    return _WORD.findall(text)


def in_order(*roots: ast.AST) -> list[ast.AST]:
    """All nodes below some nodes and these, in the order of the text, without marks such as `ast.Load`."""
    # Every child of a search passes through here, several times: it takes a third of the time of `ast.walk`.
    found: list[ast.AST] = []
    waiting: list[object] = list(reversed(roots))
    while waiting:
        one = waiting.pop()
        if isinstance(one, ast.AST):
            found.append(one)
            waiting += [getattr(one, name, None) for name in _with_nodes(one._fields)]
        elif isinstance(one, list):
            waiting += reversed(one)
    return found


@lru_cache(maxsize=256)
def _with_nodes(fields: tuple[str, ...]) -> tuple[str, ...]:
    """Those fields of a kind of nodes that may hold nodes, the last first."""
    return tuple(name for name in reversed(fields) if name not in _MARKS)


def assigned(nodes: Iterable[ast.AST]) -> set[str]:
    """The names that some nodes assign, whosever they are."""
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def rename(nodes: Sequence[ast.AST], local: Collection[str]) -> None:
    """Number these names in the order of the nodes, whatever they are."""
    numbers: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Name) and node.id in local:
            node.id = numbers.setdefault(node.id, f"${len(numbers) + 1}")


def bound(tree: ast.Module) -> tuple[set[str], list[Function]]:
    """The names that are bound in any other way than as a local variable; and the functions that are in no other.

    A star among the names stands for any.
    """
    kept: set[str] = set()
    outermost: list[Function] = []
    #: What is to be looked at; whether names that are assigned there are local; whether it is in a function at all,
    #: for in a class in a function they are none.
    waiting: list[tuple[object, bool, bool]] = [(tree, False, False)]
    while waiting:
        node, local, within = waiting.pop()
        if isinstance(node, list):
            waiting += [(one, local, within) for one in node]
            continue
        if isinstance(node, ast.Name):
            if not local and not isinstance(node.ctx, ast.Load):
                kept.add(node.id)
            continue
        if not isinstance(node, ast.AST) or isinstance(node, ast.Constant):
            continue
        if isinstance(node, ast.expr):  # most of a file: before the long way
            waiting += [(getattr(node, name, None), local, within) for name in _with_nodes(node._fields)]
            continue
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                if not within:
                    outermost.append(node)
                kept.add(node.name)
                # Decorators, defaults and annotations are evaluated outside.
                waiting += [(part, local, within) for part in (node.decorator_list, node.args, node.returns)]
                waiting.append((node.body, True, True))
                continue
            case ast.ClassDef():
                kept.add(node.name)
                waiting += [(part, local, within) for part in (node.decorator_list, node.bases, node.keywords)]
                waiting.append((node.body, False, within))
                continue
            case ast.alias():
                kept.add(node.asname or node.name.partition(".")[0])
            case ast.arg():
                kept.add(node.arg)
            case ast.Global() | ast.Nonlocal():
                kept.update(node.names)
            case ast.keyword():
                pass
            case _:  # except … as name, case … as name, case {**rest}
                for name in ("name", "rest"):
                    if isinstance(text := getattr(node, name, None), str):
                        kept.add(text)
        waiting += [(getattr(node, name, None), local, within) for name in _with_nodes(node._fields)]
    return kept, outermost
