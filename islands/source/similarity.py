"""How similar two kernels are, whatever names they use.

The resemblance of two texts is the share of their shingles, runs of a few tokens, that they have in common (Broder
1997, "On the resemblance and containment of documents"). It says how much text two kernels share, not whether they do
the same (`canonical` does): good for a question to the model, never for a verdict.
"""

import ast
import re
from collections.abc import Iterator

from kbevolve.configs.syntax import parse
from kbevolve.islands.source.active_code import active_code
from kbevolve.islands.source.tree import MOST_READ

#: Tokens of a shingle. One changed token changes this many of them.
_SHINGLE = 5
#: Names that the format prescribes.
_PRESCRIBED = frozenset({"ModelNew", "Model", "forward", "__init__", "self", "super", "launch", "run"})
_TOKEN = re.compile(
    r'"(?:[^"\\\n]|\\.)*"?|\'(?:[^\'\\\n]|\\.)*\'?|[A-Za-z_]\w*|\d[\w.]*(?:[eE][-+]\d+)?|<<<|>>>|[-+*/%&|^<>=!]=|\S'
)
#: In C++ and CUDA a name is declared behind a type, or defined as a macro. Qualifiers and pointers may stand between.
_DECLARED = re.compile(
    r"(?:\b(?:auto|bool|char|short|int|long|unsigned|signed|float|double|half|size_t|dim3|\w+_t|(?:u?int|float|half|double)"
    r"[1-4])\b(?:\s*(?:const|__restrict__|__restrict)\b|\s*[*&])*|#\s*define)\s+[*&]*([A-Za-z_]\w*)"
)

#: The runs of tokens that a kernel holds.
Shingles = frozenset[tuple[str, ...]]


def shingles(source: str) -> Shingles:
    """What is compared of a kernel: runs of its live tokens (`active_code`), its own names all written ``$``."""
    text = active_code(source[:MOST_READ])
    own = (_bound(text.python) | set(_DECLARED.findall(text.native))) - _PRESCRIBED
    tokens = [*_masked(text.python, own), "\x00", *_masked(text.native, own)]
    return frozenset(tuple(tokens[start : start + _SHINGLE]) for start in range(max(1, len(tokens) - _SHINGLE + 1)))


def resemblance(one: Shingles, other: Shingles) -> float:
    """Share of shingles that two kernels have in common, 0 to 1."""
    shared = len(one & other)
    return shared / (len(one) + len(other) - shared)


def _masked(text: str, own: set[str]) -> Iterator[str]:
    before = ""
    for token in _TOKEN.findall(text):
        # An attribute is another name, even if a variable is called the same.
        yield "$" if token in own and before != "." else token
        before = token


def _bound(python: str) -> set[str]:
    """Names that the Python part assigns, takes as arguments or defines, imports left out."""
    try:
        tree = parse(python)
    except (SyntaxError, ValueError, RecursionError, MemoryError, SystemError):
        return set()
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                found.add(name)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
    return found
