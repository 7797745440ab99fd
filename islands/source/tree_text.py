"""A syntax tree as a text: as `ast.dump`, without what follows from the rest, and with local variables numbered.

A file may be told piece by piece. What a local variable is depends on the whole file, so that a piece is told with
holes where names of its functions stand; they are filled when all pieces are there.
"""

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from kbevolve.islands.source.local_names import BUILTINS, Function, assigned, bound, in_order

_APART = "\x1f"


@dataclass(frozen=True, slots=True)
class Told:
    """Some statements of a file, told but for the names in their functions."""

    #: How many they are; none for docstrings alone, which are told as ``pass`` where a file has nothing else.
    statements: int
    #: Parts of the text, and between them names in functions, with the number of the function.
    parts: tuple[str | tuple[int, str], ...]
    #: By function, the names that are assigned in it.
    assigned: tuple[frozenset[str], ...]
    #: Names that are bound in any other way, `local_names.bound`.
    bound: frozenset[str]
    #: Words in strings.
    words: frozenset[str]


class _Into:
    """Stands before the body of an outermost function, with its number, and behind it with None."""

    def __init__(self, number: int | None) -> None:
        self.number = number


def tell(tree: ast.Module, words: set[str], *, is_empty: bool) -> Told:
    """Tell a whole file or a piece of one.

    Args:
        tree: its syntax tree, without docstrings.
        words: of its strings.
        is_empty: whether there was nothing but docstrings.
    """
    names, functions = bound(tree)
    numbers = {id(function): number for number, function in enumerate(functions)}
    parts: list[str | tuple[int, str]] = []
    run: list[str] = []
    function: int | None = None
    waiting: list[object] = list(reversed(tree.body))
    while waiting:
        one = waiting.pop()
        if isinstance(one, ast.Name):  # told as no other node is
            if function is None:
                run.append(one.id)
            else:
                if run:
                    parts.append(_APART.join(run))
                    run.clear()
                parts.append((function, one.id))
        elif isinstance(one, ast.AST):
            run.append(f"<{type(one).__name__}")
            for name in reversed(one._fields):
                if name == "body" and isinstance(one, Function) and id(one) in numbers:
                    waiting += [_Into(None), one.body, _Into(numbers[id(one)])]
                elif name != "ctx":
                    waiting.append(getattr(one, name, None))
        elif isinstance(one, list):
            run.append(f"[{len(one)}")
            waiting += reversed(one)
        elif isinstance(one, _Into):
            function = one.number
        else:
            run.append(f"={one!r}")
    if run:
        parts.append(_APART.join(run))
    return Told(
        statements=0 if is_empty else len(tree.body),
        parts=tuple(parts),
        assigned=tuple(frozenset(assigned(in_order(*function.body))) for function in functions),
        bound=frozenset(names),
        words=frozenset(words),
    )


def put_together(pieces: Sequence[Told]) -> str:
    """The text of a file, its local variables numbered ``$1``, ``$2``, … by their first appearance in a function.

    Only what is certainly local is renamed: a name that is assigned in functions alone, by plain assignments, loops,
    ``with`` and comprehensions, and that is not also a parameter, an import, a function, a class, a global, a builtin,
    or a word in any string of the file. Whoever shows names to the program (``locals``, ``eval``, …) is the caller's to
    exclude.
    """
    kept = BUILTINS.union(*(piece.bound for piece in pieces), *(piece.words for piece in pieces))
    any_name = any("*" in piece.bound for piece in pieces)  # of a star import: any name may be a global one
    told: list[str] = []
    for piece in [piece for piece in pieces if piece.statements] or [piece for piece in pieces if piece.parts][:1]:
        local = [
            {name for name in names if name not in kept and not name.startswith("__")}  # those are mangled in a class
            for names in (() if any_name else piece.assigned)
        ]
        numbered: list[dict[str, str]] = [{} for _ in piece.assigned]
        for part in piece.parts:
            if isinstance(part, str):
                told.append(part)
                continue
            function, name = part
            if not any_name and name in local[function]:
                name = numbered[function].setdefault(name, f"${len(numbered[function]) + 1}")
            told.append(name)
    count = sum(piece.statements for piece in pieces) or (1 if told else 0)
    return _APART.join(["<Module", f"[{count}", *told, "[0"])
