"""A file's definitions without those that nothing of it uses: a model that reads a kernel pays for each line."""

import ast

from kbevolve.configs.syntax import parse


def without_unused(text: str, used: set[str]) -> str:
    """Python text of blocks with two empty lines between them, without blocks that define only what is never used.

    Args:
        text: definitions; blocks without any, such as imports, stay.
        used: names that others use.
    """
    blocks = text.split("\n\n\n")
    defined = [_defined(block) for block in blocks]
    kept: set[int] = set()
    names = set(used)
    while found := {at for at, own in enumerate(defined) if at not in kept and (not own or not own.isdisjoint(names))}:
        kept |= found
        names = names.union(*(names_in(blocks[at]) for at in found))
    return "\n\n\n".join(blocks[at] for at in sorted(kept))


def names_in(text: str) -> set[str]:
    """Every name that Python text reads or binds."""
    return {node.id for node in ast.walk(parse(text)) if isinstance(node, ast.Name)}


def _defined(block: str) -> set[str]:
    found: set[str] = set()
    for node in parse(block).body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Assign(targets=targets):
                found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found
