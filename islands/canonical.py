"""The tokens of a kernel as a compiler would see them, with its own names numbered: what it is, whatever it is called.

Two children that differ in comments, dead branches, layout or the names of their variables are one program, and the
second is not worth a place in the queue. Names that the file does not define (functions of libraries, of CUDA and of
Triton, attributes) keep their text: ``tl.max`` and ``tl.sum`` are different programs.
"""

import ast
import hashlib
import re
from collections.abc import Iterator

from kbevolve.islands.live_text import live_text

#: Names that the format prescribes.
_PRESCRIBED = frozenset({"ModelNew", "Model", "forward", "__init__", "self", "super", "launch", "run"})
_TOKEN = re.compile(
    r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|[A-Za-z_]\w*|\d[\w.]*(?:[eE][-+]\d+)?|<<<|>>>|[-+*/%&|^<>=!]=|\S'
)
_NAME = re.compile(r"[A-Za-z_]\w*\Z")
#: In C++ and CUDA a name is declared behind a type, or defined as a macro. Qualifiers and pointers may stand between.
_DECLARED = re.compile(
    r"(?:\b(?:auto|bool|char|short|int|long|unsigned|signed|float|double|half|size_t|dim3|\w+_t|(?:u?int|float|half|double)"
    r"[1-4])\b(?:\s*(?:const|__restrict__|__restrict)\b|\s*[*&])*|#\s*define)\s+[*&]*([A-Za-z_]\w*)"
)


def canonical_tokens(source: str) -> tuple[str, ...]:
    """All tokens of the live text (`islands.live_text`), Python first; own names as ``$1``, ``$2``, … by appearance."""
    text = live_text(source)
    own = (_bound(text.python) | set(_DECLARED.findall(text.native))) - _PRESCRIBED
    numbers: dict[str, str] = {}
    return tuple(_numbered(_tokens(text.python, text.native), own, numbers))


def canonical_id(source: str) -> str:
    """Hash of the canonical tokens, 16 hexadecimal digits: equal where nothing that is compiled differs."""
    text = "\x1f".join(canonical_tokens(source))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _tokens(python: str, native: str) -> Iterator[str]:
    yield from _TOKEN.findall(python)
    yield "\x00"
    yield from _TOKEN.findall(native)


def _numbered(tokens: Iterator[str], own: set[str], numbers: dict[str, str]) -> Iterator[str]:
    before = ""
    for token in tokens:
        # An attribute belongs to somebody else, even if a variable has the same name.
        if token in own and before != "." and _NAME.match(token):
            yield numbers.setdefault(token, f"${len(numbers) + 1}")
        else:
            yield token
        before = token


def _bound(python: str) -> set[str]:
    """Names that the Python part assigns, takes as arguments or defines, imports left out."""
    try:
        tree = ast.parse(python)
    except (SyntaxError, RecursionError, SystemError):  # as it stands, then: stricter, never looser
        return set()
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                found.add(name)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
    return found
