"""The lint: reads a kernel's source before anything is run, and says what it sees."""

import ast
import re
from dataclasses import dataclass
from typing import Literal

from kbevolve.evaluators.lint.copies import contains_copy
from kbevolve.evaluators.lint.cpp import check_cpp, looks_like_cpp
from kbevolve.evaluators.lint.operations import operation_weight
from kbevolve.evaluators.lint.python import PythonRules
from kbevolve.evaluators.lint.syntax import parsed
from kbevolve.evaluators.lint.tags import REFUSALS, Marks

#: Python within strings within Python that is read.
_DEEPEST = 3
#: Characters of one string that are read as code: a kernel's source has some ten thousand.
_MOST_TEXT = 200_000
#: Characters from which on reading the same source twice costs more than comparing.
_LONG = 1000

_FAST_MATH = re.compile(
    r"--?use_fast_math|-ffast-math|-Ofast|--?ftz=true|-funsafe-math-optimizations|--?prec-(div|sqrt)=false|-fassociative-math"
)
_FLAGS = re.compile(r"(\s+-[^\n;]*)*\s*")
_DEFINITION = re.compile(r"-D\s*([A-Za-z_]\w*(?:=.*)?)", re.DOTALL)
_PYTHON = re.compile(r"^\s*(import |from \w[\w.]* import |def |class |@)|\bimport\b", re.MULTILINE)
_OPERATOR = re.compile(r"(?:aten|prims)::(\w+)")
_NATIVE = re.compile(r"mprotect|ptrace|process_vm_(readv|writev)|pkey_mprotect")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What the lint sees in one kernel."""

    #: Facts for filters, sorted; keys of `TAGS`.
    tags: tuple[str, ...]
    #: Why the kernel is not accepted and what to do instead, one sentence fit for a prompt; "" when it is accepted.
    refusal: str


def lint(
    source: str, *, allow_library: Literal["full", "partial", "none"] = "full", reference_source: str = ""
) -> Finding:
    """Read a kernel. It never raises: what is no Python gets no tags, and fails where it is imported.

    A filter and a source of tags, not the defence: what it cannot see, the judge measures.

    Args:
        source: the whole ModelNew file.
        allow_library: which of torch's operations a call of the model may use: any ("full"), none of the heavy
            ones ("partial"), none at all ("none"). Allocation, views and copies are no operations, and what only
            prepares the model (its constructor, the file's top level) is free.
        reference_source: the problem's file, to recognise its forward; "" for none.
    """
    marks = Marks()
    definitions: list[str] = []
    tree = _check_python(source, marks, definitions, 0)
    if tree is None:
        return Finding(tags=(), refusal="")
    reference = parsed(reference_source)
    if reference is not None and contains_copy(tree, reference):
        marks.tag("reference-copied")
    if not marks.own_kernel:
        marks.tag("library-only")
        if marks.loads_library:
            marks.tag("foreign-library")
    if marks.runs_text and marks.decodes:
        marks.refuse("exec")
    return Finding(tags=tuple(sorted(marks.tags)), refusal=_refusal(marks, allow_library))


def _check_python(source: str, marks: Marks, definitions: list[str], depth: int) -> ast.Module | None:
    """Read one Python text and the texts in its strings; None when it is no Python."""
    tree = parsed(source)
    if tree is None:
        return None
    rules = PythonRules(tree, marks, running=depth > 0)
    rules.check()
    texts = [text[:_MOST_TEXT] for text in rules.texts]
    definitions += [found[1] for text in texts if (found := _DEFINITION.fullmatch(text.strip()))]
    long = [text for text in texts if len(text) > _LONG and text.rstrip().endswith(("}", ";"))]
    for text in texts:
        # A source with its flags behind it, as is hashed for a file's name: nothing new.
        if any(text != code and text.startswith(code) and _FLAGS.fullmatch(text[len(code) :]) for code in long):
            _check_flags(text[-_LONG:], marks)
        else:
            _check_text(text, marks, definitions, depth)
    return tree


def _check_flags(text: str, marks: Marks) -> None:
    """A compiler's flags."""
    if _FAST_MATH.search(text):
        marks.tag("fast-math")


def _check_text(text: str, marks: Marks, definitions: list[str], depth: int) -> None:
    """A string may be a flag, an operator's name, Python or C++."""
    _check_flags(text, marks)
    operator = _OPERATOR.match(text)
    if operator is not None:
        marks.operation(operation_weight(operator[1]), operator[0])
    if _NATIVE.fullmatch(text):
        marks.refuse("foreign-library")
    if depth < _DEEPEST and _PYTHON.search(text) and _check_python(text, marks, definitions, depth + 1) is not None:
        return
    if looks_like_cpp(text):
        check_cpp(text, definitions, marks)


def _refusal(marks: Marks, allow_library: str) -> str:
    for rule, sentence in REFUSALS.items():
        if rule in marks.refused:
            return f"not accepted: {sentence}"
    used = {**marks.heavy, **(marks.light if allow_library == "none" else {})}
    if allow_library != "full" and used:
        names = ", ".join(list(used)[:4]) + (", …" if len(used) > 4 else "")
        what = "the heavy operations of libraries" if allow_library == "partial" else "a library's operations"
        return (
            f"not accepted: {what} in forward (here {names}); compute this in a kernel of your own. "
            "Allocation, views and copies by torch are fine"
        )
    return ""
