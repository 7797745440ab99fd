"""The canonical form of a kernel file: files of one form run alike, whatever their comments, layout and local names.

The form is the syntax tree without docstrings, with local variables numbered, and with comments removed from the
C++ and CUDA texts that only a compiler sees. A second kernel of one form is not worth an evaluation. A file that could
look at its own text or names keeps both: two kernels that behave differently must never get one form.
"""

import ast
import builtins
import hashlib
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from kbevolve.configs.syntax import parse
from kbevolve.islands.source.embedded_native import compiled_texts, native_form
from kbevolve.islands.source.tree import (
    MOST_READ,
    Function,
    blocks_of,
    bound_by,
    cached,
    is_string,
    nodes_of,
    statements_of,
    with_line_feeds,
)

#: Part of every hash: no kernel of today equals a form that an earlier version wrote into an archive.
VERSION = 2
#: With these a file, or its native code, may read its own text, lines, names or folder.
_INTROSPECTION = frozenset(
    word
    for line in (
        "__doc__ __file__ __code__ __dict__ __builtins__ __import__ __loader__ __spec__ __traceback__",
        "__getattribute__ tb_lineno tb_frame f_lineno f_locals f_globals f_code f_back _getframe _current_frames",
        "currentframe exc_info modules settrace setprofile builtins importlib import_module runpy inspect dis gc ast",
        "tokenize linecache traceback marshal pickle FunctionType CodeType LambdaType attrgetter pythonapi py_object",
        "script script_method script_if_tracing evaluate re_evaluate getsource _name open fdopen read_text read_bytes",
        "readlines getlines fromfile from_file genfromtxt loadtxt memmap listdir scandir iterdir glob rglob",
        "subprocess Popen popen system execv execve posix_spawn fopen freopen ifstream fstream mmap dladdr metaclass",
        "string_at from_address pydoc __init_subclass__ __prepare__",
    )
    for word in line.split()
)
#: Builtin functions of this kind. As attributes their names are common and harmless (``model.eval()``).
_CALLED = frozenset(("locals", "globals", "vars", "dir", "eval", "exec", "compile", "help"))
#: They find an attribute by a text: harmless where this text is a constant, which is searched like any string.
_BY_TEXT = frozenset(("getattr", "setattr", "hasattr", "delattr"))
#: How names of Python's C interface begin, by which native code can see anything.
_C_INTERFACE = ("PyEval", "PyFrame", "PyCode", "PyImport", "PyObject", "PyRun")
#: Decorators that never read a docstring.
_BLIND = frozenset(
    ("jit", "autotune", "heuristics", "staticmethod", "classmethod", "property", "no_grad", "inference_mode")
)
_BUILTINS = frozenset(dir(builtins))
_WORD = re.compile(r"[^\W\d]\w*")
#: A comment in the first two lines that changes how the file is decoded.
_CODING = re.compile(r"\A(?:[^\n]*\n)?[ \t\f]*#[^\n]*coding[:=]")


def canonical_id(source: str) -> str:
    """Hash of a kernel's form, with the `VERSION` of forms: 16 hexadecimal digits."""
    return form_id(canonical_form(source))


def form_id(form: str) -> str:
    """`canonical_id` of a kernel whose form is known."""
    text = f"{VERSION}:{form}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def canonical_form(source: str) -> str:
    """The form, a text for comparison only; of a file that has to stay as it is, a NUL and its text."""
    form = _form(source, lambda number, text: native_form(text))
    return f"\x00{with_line_feeds(source)}" if form is None else form[0]


def shell_of(source: str) -> tuple[str, tuple[str, ...]] | None:
    """The canonical form without the texts that only a compiler sees; and these texts, unchanged.

    Two kernels of one shell whose texts compile to the same machine code run alike. None where nothing is compiled, or
    where the file has to stay as it is.
    """
    form = _form(source, lambda number, text: f"\x00{number}")
    return form if form is not None and form[1] else None


def _form(source: str, replacement: Callable[[int, str], str]) -> tuple[str, tuple[str, ...]] | None:
    """The form with each compiled text replaced, and these texts. None where the file has to stay as it is."""
    text = with_line_feeds(source)
    if len(text) > MOST_READ or _CODING.match(text):
        return None
    try:
        statements = statements_of(text)
        facts = [_facts(statement) for statement in statements]
        if any(fact.has_lines for fact in facts):
            return _form_with_native(text, replacement)
        if any(fact.is_introspective for fact in facts):
            return None
        fixed = frozenset[str]().union(*(fact.fixed for fact in facts))
        parts = (
            _numbered(one, fixed & fact.names | fixed & {"*"}) for one, fact in zip(statements, facts, strict=True)
        )
        return "\x1f".join(filter(None, parts)), ()
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # no Python, or a number of thousands of digits
        return None


@dataclass(frozen=True, slots=True)
class _Facts:
    """What the rest of a file has to know of a statement."""

    #: Names of variables in it; and those that cannot be renamed anywhere in the file.
    names: frozenset[str]
    fixed: frozenset[str]
    #: Whether it has strings of several lines, which may be native code.
    has_lines: bool
    is_introspective: bool


@cached(1024)
def _facts(statement: str) -> _Facts:
    tree, nodes = _without_docstrings(statement)
    words = _words_of_strings(nodes)
    return _Facts(
        frozenset(node.id for node in nodes if isinstance(node, ast.Name)),
        frozenset(_fixed(tree, nodes) | words),
        any(isinstance(node, ast.Constant) and "\n" in _text(node.value) for node in nodes),
        _is_introspective(nodes, words, set()),
    )


@cached(1024)
def _numbered(statement: str, fixed: frozenset[str]) -> str:
    """The form of a statement; "" of a docstring."""
    tree, _ = _without_docstrings(statement)
    _number_locals(tree, fixed)
    return "\x1f".join(ast.dump(node, annotate_fields=False) for node in tree.body)


def _form_with_native(text: str, replacement: Callable[[int, str], str]) -> tuple[str, tuple[str, ...]] | None:
    """As `_form`, of a file read whole: only then is it known which strings are compiled and nothing else."""
    tree, nodes = _without_docstrings(text)
    compiled = compiled_texts(tree, nodes)
    texts = tuple(str(node.value) for node in compiled)
    for node in compiled:
        node.value = ""
    words = _words_of_strings(nodes)
    if _is_introspective(nodes, words, {word for one in texts for word in _WORD.findall(native_form(one))}):
        return None
    _number_locals(tree, _fixed(tree, nodes) | words)
    for number, (node, native) in enumerate(zip(compiled, texts, strict=True)):
        node.value = replacement(number, native)
    return "\x1f".join(ast.dump(node, annotate_fields=False) for node in tree.body), texts


def _without_docstrings(text: str) -> tuple[ast.Module, list[ast.AST]]:
    """A syntax tree, and all its nodes."""
    tree = parse(text)
    tree.body = [statement for statement in tree.body if not is_string(statement)]
    _drop_docstrings(tree)
    return tree, nodes_of(tree)


def _text(value: object) -> str:
    """The text of a string constant; "" of any other."""
    return value.decode("latin-1") if isinstance(value, bytes) else value if isinstance(value, str) else ""


def _words_of_strings(nodes: Sequence[ast.AST]) -> set[str]:
    """What may be names in strings."""
    return {word for node in nodes if isinstance(node, ast.Constant) for word in _WORD.findall(_text(node.value))}


def _drop_docstrings(node: ast.AST) -> None:
    """Drop strings that are statements; but a decorator may read the docstring of what it decorates."""
    kept = 0 if all(map(_is_blind, getattr(node, "decorator_list", ()))) else 1
    for block in blocks_of(node):
        block[:] = [one for at, one in enumerate(block) if at < kept or not is_string(one)] or [ast.Pass()]
        for statement in block:
            _drop_docstrings(statement)


def _is_blind(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return getattr(called, "attr", getattr(called, "id", "")) in _BLIND


def _is_introspective(nodes: Sequence[ast.AST], words: set[str], native: set[str]) -> bool:
    """Whether anything in a file may make its text or its names a part of what it does.

    `words` are those of its strings, `native` those of the texts that only a compiler sees.
    """
    if not _CALLED.isdisjoint(native) or any(word.startswith(_C_INTERFACE) for word in native):
        return True
    constant = {
        id(node.func)
        for node in nodes
        if isinstance(node, ast.Call) and len(node.args) > 1 and _text(getattr(node.args[1], "value", None))
    }
    names = set()
    for node in nodes:
        match node:
            case ast.Name(id=name):
                if name in _CALLED or (name in _BY_TEXT and id(node) not in constant):
                    return True
                names.add(name)
            case ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
                names.add(name)
            case ast.MatchClass(kwd_attrs=found):
                names.update(found)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                modules = (getattr(node, "module", None), *(alias.name for alias in aliases))
                names.update(part for module in modules if module for part in module.split("."))
            case ast.FunctionDef(name=name):
                names.add(name)
    return not _INTROSPECTION.isdisjoint(names | words | native)


def _fixed(tree: ast.Module, nodes: Sequence[ast.AST]) -> set[str]:
    """Names that something else than a local variable has: parameters, imports, functions, classes, globals, ...

    A star among them stands for all names.
    """
    bodies = [nodes_of(*function.body) for function in _outermost(tree)]
    local = {id(node) for body in bodies for node in body if isinstance(node, ast.Name)}
    for one in (node for body in bodies for node in body if isinstance(node, ast.ClassDef)):
        local.difference_update(map(id, nodes_of(*one.body)))
    return {name for node in nodes if id(node) not in local for name in bound_by(node)}


def _number_locals(tree: ast.Module, fixed: Collection[str]) -> None:
    """Rename the variables that functions assign ``$1``, ``$2``, ... by their first appearance in the outermost one.

    `fixed` names, which something else in the file has, stay, as do those of builtins.
    """
    for function in () if "*" in fixed else _outermost(tree):
        names = [node for node in nodes_of(*function.body) if isinstance(node, ast.Name)]
        assigned = {name for node in names for name in bound_by(node) if not name.startswith("__")}
        assigned.difference_update(fixed, _BUILTINS)
        numbers: dict[str, str] = {}
        for node in names:
            if node.id in assigned:
                node.id = numbers.setdefault(node.id, f"${len(numbers) + 1}")


def _outermost(node: ast.AST) -> Iterator[Function]:
    """The functions that are in no other function."""
    for block in blocks_of(node):
        for statement in block:
            if isinstance(statement, Function):
                yield statement
            else:
                yield from _outermost(statement)
