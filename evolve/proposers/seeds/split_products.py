"""Inductor's code with its products on the tensor cores: a second starting kernel for fp32 tasks on sm_90.

Inductor fuses what is around a product or a convolution and leaves it to a library, which computes it in strict fp32
without tensor cores. Here each such call becomes one of a template (`configs/templates`), or stays the library's, as a
tunable of that call says. The template splits operands into pairs of fp16, or adds up a convolution's few taps. An
attention that `attention.py` has made one call never writes its scores, and a product of `fusion.py` is written when
what follows it is computed.
"""

import ast
from collections.abc import Hashable, Sequence
from itertools import accumulate

from kbevolve.configs.syntax import parse
from kbevolve.configs.templates import TEMPLATES, template
from kbevolve.evolve.proposers.seeds.library_calls import LibraryCall, library_calls
from kbevolve.evolve.proposers.seeds.reachable import names_in, without_unused
from kbevolve.evolve.proposers.tuning.tunables import declared

#: The variable of a file that has the epilogues in CUDA (`epilogues.py`).
IN_CUDA = "EPILOGUES_IN_CUDA"
#: Tunables that choose a template, so that the search stays small; of more calls, those of a kind share one.
_MOST_TUNABLES = 6


def with_split_products(source: str) -> str | None:
    """A file of Inductor's code with split products; None where a library computes nothing of it.

    Args:
        source: from `inductor.wrap`, of an fp32 task; with each attention as one call or not.
    """
    calls = library_calls(parse(source))
    if not calls:
        return None
    tunables = [f"PRODUCT_{number}" for number in _numbered(calls)]
    text = _with_choices(source, calls, tunables)
    needed = {"imports", *(name for call in calls for name in call.files)}
    if "functions" not in needed:
        needed.add("no_epilogue")
    used = [name for name in TEMPLATES if name in needed]
    templates = without_unused("\n\n\n".join(template(name).strip("\n") for name in used), names_in(text))
    switches = _switches(calls, tunables, used, {one.name for one in declared(templates)})
    if "cuda_convolution" not in used:
        text = _without_cuda(text)
    lines = text.splitlines(keepends=True)
    place = _first_statement(text)
    before, behind = "".join(lines[:place]), "".join(lines[place:])
    return f"{before}{templates}\n\n\n# The number of a template's code; 0: the library's.\n{switches}\n\n{behind}"


def _with_choices(source: str, calls: Sequence[LibraryCall], tunables: Sequence[str]) -> str:
    """The file with a choice in the place of each call's function."""
    starts = [0, *accumulate(len(line) for line in source.encode().splitlines(keepends=True))]
    text = bytearray(source.encode())
    for call, tunable in reversed(list(zip(calls, tunables, strict=True))):
        begin = starts[call.function.lineno - 1] + call.function.col_offset
        text[begin : begin + len(ast.unparse(call.function))] = call.choice(tunable).encode()
    return text.decode()


def _switches(calls: Sequence[LibraryCall], tunables: Sequence[str], used: Sequence[str], there: set[str]) -> str:
    """The tunables of calls, and when those of templates have an effect; `there`: the latter's names in the file."""
    text = ""
    for tunable in sorted(set(tunables)):
        alike = [call for call, its in zip(calls, tunables, strict=True) if its == tunable]
        first, most = max(call.first for call in alike), max(len(call.templates) for call in alike)
        others = (*range(first - 1, -1, -1), *range(first + 1, most + 1))
        text += f"{tunable} = {first}  # tune: {', '.join(map(str, (first, *others)))}\n"
    # Values of a template that no call has chosen have no effect.
    for name in used:
        conditions = {call.condition(its, name) for call, its in zip(calls, tunables, strict=True)} - {""}
        if values := ", ".join(one.name for one in declared(template(name)) if one.name in there):
            text += f"# tune {values} if: {' or '.join(sorted(conditions)) or 0}\n"
    return text


def _numbered(calls: Sequence[LibraryCall]) -> list[int]:
    """The number of each call's tunable: its own, or that of its kind. A kind is as narrow as so few tunables allow."""
    kinds: Sequence[Hashable] = range(len(calls))
    for narrower in zip(*(call.kinds() for call in calls), strict=True):
        if len(set(kinds)) > _MOST_TUNABLES:
            kinds = narrower
    order = list(dict.fromkeys(kinds))
    return [min(order.index(kind), _MOST_TUNABLES - 1) for kind in kinds]


def _without_cuda(source: str) -> str:
    """Without the epilogues in CUDA, which no template reads."""
    for node in parse(source).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]) if name == IN_CUDA:
                lines = source.splitlines(keepends=True)
                return "".join(lines[: node.lineno - 1] + lines[node.end_lineno :])
    return source


def _first_statement(source: str) -> int:
    """The line, from 0, of the first statement that is neither a text, an import nor an assignment to an attribute."""
    for node in parse(source).body:
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant()):
                continue
            case ast.Assign(targets=[ast.Attribute()]):
                continue
            case ast.FunctionDef(decorator_list=[first, *_]):
                return first.lineno - 1
        return node.lineno - 1
    return 0
