"""What the value of a tunable reaches: the code of its template, and the kernels whose time it can change.

Read off the Python of a file, by names: a function or class is reached from a tunable that it mentions, and from what
mentions it, also through a name that the file gives it. A tunable that is the condition of `a if TUNABLE else b`
reaches what a and b name. What is declared in text, such as CUDA C++ in a string, reaches everything.
"""

import ast
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from kbevolve.archive.identity import digest
from kbevolve.archive.records import Launch
from kbevolve.configs.syntax import parse
from kbevolve.evolve.proposers.tuning.tunables import declared

#: What a file's calls of library kernels are named in torch.compile's code.
_LIBRARY = "extern_kernels"

#: A class is one with all its methods.
_Unit = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def shares(source: str, launches: Sequence[Launch]) -> dict[str, float]:
    """Tunable -> the share of the launches' time that it can change, 0 to 1; empty without launches or Python.

    The time of a kernel that several conditions choose is theirs in equal parts: a profile has only its sum.
    """
    reached, total = _reached(source), sum(one.share for one in launches)
    if not reached or not total:
        return {}
    found = dict.fromkeys(reached, 0.0)
    for one in launches:
        those = [name for name, (names, _) in reached.items() if _launched(one, names)]
        switches = sum(reached[name][1] for name in those)
        for name in those:
            found[name] += one.share / total / (switches if reached[name][1] else 1)
    # A template that no condition has chosen is not in the profile: its tunables can change what the condition can.
    for name, (names, is_switch) in reached.items():
        if not is_switch and not found[name]:
            rivals = (found[other] for other, (theirs, switch) in reached.items() if switch and names & theirs)
            found[name] = max(rivals, default=0.0)
    return {name: min(share, 1.0) for name, share in found.items()}


@lru_cache(maxsize=1024)
def templates(source: str) -> Mapping[str, str]:
    """Tunable -> identity of its declaration and of all that mentions it: equal in the files of a template."""
    units = _units(source)
    found = {}
    for one in declared(source):
        texts = sorted(ast.dump(unit) for unit in units if one.name in _names([unit]))
        if texts:
            found[one.name] = digest("\n".join((one.name, *sorted(one.choices), *texts)))
    return found


@lru_cache(maxsize=1024)
def _reached(source: str) -> Mapping[str, tuple[frozenset[str], bool]]:
    """Tunable that Python mentions -> all names that it reaches, and whether it does no more than choose calls."""
    units = _units(source)
    own = _defined(source) | {_LIBRARY}
    mentioned = {name: _names([value]) & own for name, value in _given(source)}
    mentioned |= {unit.name: _names([unit]) & own for unit in units}
    found = {}
    for tunable in (one.name for one in declared(source)):
        names, is_switch = set[str](), True
        for unit in units:
            choices = [
                node
                for node in ast.walk(unit)
                if isinstance(node, ast.IfExp) and tunable in _names([node.test], attributes=False)
            ]
            for choice in choices:
                names |= _names([choice.body, choice.orelse]) & own
            used = sum(isinstance(node, ast.Name) and node.id == tunable for node in ast.walk(unit))
            if used > len(choices):
                is_switch = False
                names |= {unit.name, *mentioned[unit.name]}
        if names:
            found[tunable] = (_closure(names, mentioned), is_switch)
    return found


def _closure(names: set[str], mentioned: Mapping[str, set[str]]) -> frozenset[str]:
    seen, waiting = set(names), list(names)
    while waiting:
        new = mentioned.get(waiting.pop(), set()) - seen
        seen |= new
        waiting += new
    return frozenset(seen)


def _defined(source: str) -> set[str]:
    """Names that a file gives to functions, classes, methods and values, not those of modules."""
    nodes = [node for statement in _statements(source) for node in ast.walk(statement)]
    values = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return values | {node.name for node in nodes if isinstance(node, _Unit)}


def _given(source: str) -> list[tuple[str, ast.expr]]:
    """The names that a file gives to values at its top level, and those."""
    assigned = [node for node in _statements(source) if isinstance(node, ast.Assign)]
    return [(one.id, node.value) for node in assigned for one in node.targets if isinstance(one, ast.Name)]


def _units(source: str) -> list[_Unit]:
    return [node for node in _statements(source) if isinstance(node, _Unit)]


def _statements(source: str) -> list[ast.stmt]:
    """The statements of a file; none of a file that is no Python."""
    try:
        return parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _names(nodes: Iterable[ast.AST], *, attributes: bool = True) -> set[str]:
    found = set()
    for node in (inner for outer in nodes for inner in ast.walk(outer)):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif attributes and isinstance(node, ast.Attribute):
            found.add(node.attr)
    return found


def _launched(launch: Launch, names: Iterable[str]) -> bool:
    """Whether a launch is of a kernel of these names; profilers append to a name, and shorten it."""
    if launch.library:
        return _LIBRARY in names
    return any(launch.name == name or launch.name.startswith(f"{name}_") for name in names)
