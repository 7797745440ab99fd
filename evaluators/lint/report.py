"""The lint: reads a kernel's source before anything is run, and reports what it leans on."""

import ast
import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from kbevolve.configs.syntax import parse
from kbevolve.evaluators.lint.cpp import CppReader
from kbevolve.evaluators.lint.marks import Marks
from kbevolve.evaluators.lint.operations import operation_weight
from kbevolve.evaluators.lint.python_names import MOST_TEXT
from kbevolve.evaluators.lint.python_reader import PythonReader
from kbevolve.evaluators.lint.tables import REFUSALS, words

#: Python within strings within Python that is read.
_DEEPEST = 3
#: A comment in the first two lines that says how the file is encoded (PEP 263), and what it may say.
_CODING = re.compile(r"\ufeff?(?:[ \t\f]*(?:#[^\r\n]*)?[\r\n]+)?[ \t\f]*#[^\r\n]*?coding[:=][ \t]*([-\w.]+)")
_PLAIN = words("utf-8 utf8 utf_8 ascii us-ascii")

_FAST_MATH = re.compile(
    r"--?use_fast_math|-ffast-math|-Ofast|--?ftz=true|-funsafe-math-optimizations|--?prec-(div|sqrt)=false|-fassociative-math"
)
_PYTHON = re.compile(r"^[ \t]*(import |from \w[\w.]* import |def |class |@)|\bimport\b", re.MULTILINE)
#: C++ is read for the names in it, so that prose does no harm.
_CPP = re.compile(r"#\s*(include|define|pragma)\b|__global__|__device__|[;{}]|::")
_NATIVE = re.compile(r"mprotect|ptrace|process_vm_(readv|writev)|pkey_mprotect")
_OPERATOR = re.compile(r"(?:aten|prims)::(\w+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class LintReport:
    """What the lint sees in one kernel."""

    #: Facts for filters, sorted; keys of `TAGS`.
    tags: tuple[str, ...]
    #: Why the kernel is not accepted and what to do instead, one sentence fit for a prompt; "" when it is accepted.
    refusal: str


def lint(
    source: str,
    *,
    allow_library: Literal["full", "partial", "none"] = "full",
    allow_unreadable: bool = False,
    reference_source: str = "",
) -> LintReport:
    """Read a kernel. A text that is no Python gets no tags, and fails where it is imported.

    A filter and a source of tags, not the defence: the judge measures what the lint does not see. A hostile file may
    make it hang, grow or raise: `LintProcess` reads kernels that others wrote.

    Args:
        source: the whole ModelNew file.
        allow_library: which of torch's operations a call of the model may use: any ("full"), none of the heavy
            ones ("partial"), none at all ("none"). Allocation, views and copies are no operations, and neither is
            what only prepares the model: its constructor and the top level of the file.
        allow_unreadable: whether code that the lint cannot read gives a tag instead of a refusal.
        reference_source: the problem's file, to recognise its forward; "" for none.
    """
    marks = Marks()
    if (coding := _CODING.match(source)) and coding[1].lower() not in _PLAIN:
        marks.refuse("unreadable")
    tree = _read_python(source, marks, 0)
    if tree is None:
        return LintReport(tags=(), refusal="")
    reference = _parsed(reference_source)
    if reference is not None:
        known = _forwards(reference)
        if any(steps in known for steps in _forwards(tree)):
            marks.tag("reference-copied")
    if not marks.own_kernel:
        marks.tag("library-only")
        if marks.loads_library:
            marks.tag("foreign-library")
    if (
        (marks.imports_files and marks.writes_unknown)
        or (marks.loads_library and marks.writes_bytes)
        or (marks.asks_unknown and "foreign-library" in marks.tags)
    ):
        marks.refuse("unreadable")
    if allow_unreadable:
        marks.refused.discard("unreadable")
    return LintReport(tags=tuple(sorted(marks.tags)), refusal=_refusal(marks, allow_library))


def not_python(source: str) -> str:
    """Why a file cannot be imported; "" when it is Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            parse(source)
        except SyntaxError as error:
            line = (error.text or "").strip()[:200]
            return f"not Python: line {error.lineno}: {error.msg[:500]}{f': `{line}`' if line else ''}"
        except ValueError as error:
            return f"not Python: {str(error)[:500]}"
    return ""


def _forwards(tree: ast.Module) -> list[list[str]]:
    """The nodes of each `forward`, in order: its own variables numbered, without annotations and documentation."""
    found: list[list[str]] = []
    members = [member for node in tree.body if isinstance(node, ast.ClassDef) for member in node.body]
    for forward in members:
        if not isinstance(forward, ast.FunctionDef) or forward.name != "forward":
            continue
        numbers: dict[str, int] = {argument.arg: number for number, argument in enumerate(forward.args.args)}
        steps: list[str] = []
        stack: list[ast.AST] = list(reversed(forward.body))
        while stack:
            node = stack.pop()
            if isinstance(node, ast.AnnAssign) and node.value is not None:
                node = ast.Assign([node.target], node.value)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                numbers.setdefault(node.id, len(numbers))
            own = [getattr(node, name, None) for name in ("id", "attr", "arg", "value")]
            texts = [numbers.get(text, text) if isinstance(text, str) else text for text in own]
            if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
                steps.append(f"{type(node).__name__} {[text for text in texts if not isinstance(text, ast.AST)]}")
                stack.extend(reversed([*ast.iter_child_nodes(node)]))
        found.append(steps)
    return found


def _parsed(source: str) -> ast.Module | None:
    """The syntax tree of a text, None when it is no Python. Python's own warnings about the text do not matter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def _read_python(source: str, marks: Marks, depth: int) -> ast.Module | None:
    """Read one Python text and the code in its strings; None when it is no Python."""
    tree = _parsed(source)
    if tree is not None:
        reader = PythonReader(tree, marks, running=depth > 0, documentation="__doc__" in source)
        reader.read()
        for text in reader.texts:
            _read_string(text[:MOST_TEXT], marks, depth)
        for text in reader.code:
            if depth >= _DEEPEST or _read_python(text.lstrip(" \t"), marks, depth + 1) is None:
                marks.refuse("unreadable")
    return tree


def _read_string(text: str, marks: Marks, depth: int) -> None:
    """A string may be a compiler's flag, an operator's name, Python or C++."""
    if _FAST_MATH.search(text):
        marks.tag("fast-math")
    if operator := _OPERATOR.match(text):
        marks.operation(operation_weight(operator[1]), operator[0])
    if _NATIVE.fullmatch(text):  # the name of a function to be looked up
        marks.refuse("foreign-library")
    is_python = depth < _DEEPEST and _PYTHON.search(text) and _read_python(text, marks, depth + 1) is not None
    if not is_python and len(text) > 8 and _CPP.search(text):
        CppReader(text, marks).read()


def _refusal(marks: Marks, allow_library: str) -> str:
    for rule, sentence in REFUSALS.items():
        if rule in marks.refused:
            return f"not accepted: {sentence}"
    foreign = ["a library that the file does not build"] if marks.loads_library and not marks.own_kernel else []
    return library_refusal([*marks.heavy, *foreign], marks.light, allow_library)


def library_refusal(heavy: Iterable[str], light: Iterable[str], allow_library: str) -> str:
    """Why a kernel with these operations in its forward is refused; "" where `allow_library` allows them."""
    used = [*heavy, *(light if allow_library == "none" else [])]
    if allow_library == "full" or not used:
        return ""
    names = ", ".join(name[:60] for name in used[:4]) + (", …" if len(used) > 4 else "")
    what = "the heavy operations of libraries" if allow_library == "partial" else "a library's operations"
    return (
        f"not accepted: {what} in forward (here {names}); compute this in a kernel of your own. "
        "Allocation, views and copies by torch are fine"
    )
