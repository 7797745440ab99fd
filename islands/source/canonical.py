"""What a kernel is, whatever its comments, its layout and its local variables are called.

Two children of one canonical form run alike, so that the second is not worth an evaluation. The form is the syntax
tree without docstrings, local variables numbered (`local_names`), texts that are only compiled without their
comments (`embedded_native`, `native_tokens`). A file that could look at its own text or at its own names
keeps both, and is then equal to itself alone: two kernels that behave differently must never be taken for one.
"""

import ast
import contextlib
import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache

from kbevolve.islands.source.embedded_native import compiled_texts
from kbevolve.islands.source.local_names import in_order, words_of
from kbevolve.islands.source.native_tokens import native_form
from kbevolve.islands.source.statements import pieces
from kbevolve.islands.source.tree_text import Told, put_together, tell

#: By these a file, or what it compiles, may come to see its own text, its lines, its names or its folder.
_WITNESSES = frozenset(
    word
    for words in (
        ("__doc__", "__file__", "__code__", "__dict__", "__builtins__", "__import__", "__loader__", "__spec__"),
        ("__traceback__", "__getattribute__", "tb_lineno", "tb_frame", "f_lineno", "f_locals", "f_globals", "f_code"),
        ("f_back", "_getframe", "_current_frames", "currentframe", "exc_info", "modules", "settrace", "setprofile"),
        ("builtins", "importlib", "import_module", "runpy", "inspect", "dis", "gc", "ast", "tokenize", "linecache"),
        ("traceback", "marshal", "pickle", "FunctionType", "CodeType", "LambdaType", "attrgetter", "pythonapi"),
        ("py_object", "script", "script_method", "script_if_tracing", "evaluate", "re_evaluate", "getsource", "_name"),
        ("open", "fdopen", "read_text", "read_bytes", "readlines", "getlines", "fromfile", "from_file", "genfromtxt"),
        ("loadtxt", "memmap", "listdir", "scandir", "iterdir", "glob", "rglob", "subprocess", "Popen", "popen"),
        ("system", "execv", "execve", "posix_spawn", "fopen", "freopen", "ifstream", "fstream", "mmap", "dladdr"),
        ("metaclass", "string_at", "from_address", "pydoc", "__init_subclass__", "__prepare__"),
    )
    for word in words
)
#: The same of builtin functions, whose names are common as attributes (``model.eval()``, ``torch.compile``).
_CALLED_WITNESSES = frozenset(("locals", "globals", "vars", "dir", "eval", "exec", "compile", "help"))
#: How the names of Python's own C interface begin, by which native code sees what it likes.
_INTERFACE = ("PyEval", "PyFrame", "PyCode", "PyImport", "PyObject", "PyRun")
#: They find an attribute by a text: no witness where the text stands there.
_BY_TEXT = frozenset(("getattr", "setattr", "hasattr", "delattr"))
#: Decorators that never look at a docstring, by the last part of their names.
_BLIND = frozenset(
    ("jit", "autotune", "heuristics", "staticmethod", "classmethod", "property", "no_grad", "inference_mode")
)
#: Each failure needs another thread at the same point; so many in a row are none of that kind.
_TRIES = 5
#: Why a text cannot be read: it is no Python, or has a number of thousands of digits.
_UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
#: A comment in the first two lines that changes how the file is read.
_CODING = re.compile(r"\A(?:[^\n]*\n)?[ \t\f]*#[^\n]*coding[:=]")


def canonical_id(source: str) -> str:
    """Hash of a kernel's canonical form, 16 hexadecimal digits."""
    return hashlib.sha256(canonical_form(source).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def canonical_form(source: str) -> str:
    """The form itself, a text for no reader; a file that has to stay as it is, as it is."""
    text = _with_line_feeds(source)
    told = _told_in_pieces(text)
    return _whole_form(text) if told is None else put_together(told)


def shell_of(source: str) -> tuple[str, tuple[str, ...]] | None:
    """The canonical form but for the texts that only a compiler sees, and these texts, whole.

    Two kernels of one shell whose texts compile to the same machine code run alike. None where nothing is compiled,
    or where the file has to stay as it is.
    """
    texts: list[str] = []
    form = _form(_with_line_feeds(source), texts)
    return (form, tuple(texts)) if form is not None and texts else None


def _with_line_feeds(source: str) -> str:
    return source.replace("\r\n", "\n").replace("\r", "\n")


def _whole_form(text: str) -> str:
    form = _form(text)
    return f"\x00{text}" if form is None else form


def _told_in_pieces(text: str) -> list[Told] | None:
    """A file piece by piece; None where it has to be read whole."""
    if _CODING.match(text):
        return None
    told = []
    try:
        for piece in pieces(text):
            if (one := _told_alone(piece)) is None:
                return None
            told.append(one)
    except _UNREADABLE:
        return None
    return told


@lru_cache(maxsize=1024)
def _told_alone(piece: str) -> Told | None:
    """A piece of a file; None where only the whole file says what its form is: it has texts of lines, or a witness.

    Raises:
        one of `_UNREADABLE`: it is no Python by itself.
    """
    tree = _parsed(piece)
    is_empty = all(map(_is_string, tree.body))
    _drop_docstrings(tree)
    nodes = in_order(tree)
    if any(isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" in node.value for node in nodes):
        return None
    strings = _words(nodes, apart_from=())
    return None if _looks_at_itself(nodes, strings) else tell(tree, strings, is_empty=is_empty)


def _form(text: str, texts: list[str] | None = None) -> str | None:
    """The canonical form; None where the text has to stay as it is. `texts`: takes the compiled ones out of it."""
    if _CODING.match(text):
        return None
    try:
        tree = _parsed(text)
        _drop_docstrings(tree)
        nodes = in_order(tree)
        natives = compiled_texts(tree, nodes)
        forms = [native_form(str(node.value)) for node in natives]
        compiled = {word for form in forms for word in words_of(form)}
        for number, (node, form) in enumerate(zip(natives, forms, strict=True)):
            if texts is not None:
                texts.append(str(node.value))
            node.value = form if texts is None else f"\x00{number}"
        strings = _words(nodes, apart_from=natives)
        if _looks_at_itself(nodes, strings | compiled) or _looks_at_python(compiled):
            return None
        return put_together([tell(tree, strings, is_empty=not tree.body)])
    except _UNREADABLE:
        return None


def _parsed(text: str) -> ast.Module:
    for _ in range(_TRIES - 1):
        # Another thread parsed beside this one (`configs.syntax`, which nothing here may import).
        with contextlib.suppress(SystemError):
            return ast.parse(text)
    return ast.parse(text)


def _drop_docstrings(tree: ast.Module) -> None:
    """Drop strings that stand alone; the docstring of what is decorated stays, since a decorator may read it."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            if isinstance(body, list):
                first = int(name == "body" and not all(map(_is_blind, getattr(node, "decorator_list", ()))))
                kept = [line for at, line in enumerate(body) if at < first or not _is_string(line)]
                body[:] = kept or ([ast.Pass()] if body else [])
                waiting += body
        waiting += [*getattr(node, "handlers", ()), *getattr(node, "cases", ())]


def _is_string(line: ast.AST) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) and isinstance(line.value.value, str)


def _is_blind(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
    return name in _BLIND


def _words(nodes: Sequence[ast.AST], apart_from: Sequence[ast.Constant]) -> set[str]:
    """What may be a name in the strings of a file."""
    found: set[str] = set()
    left_out = {id(node) for node in apart_from}
    for node in nodes:
        if isinstance(node, ast.Constant) and id(node) not in left_out:
            if isinstance(node.value, str):
                found.update(words_of(node.value))
            elif isinstance(node.value, bytes):
                found.update(words_of(node.value.decode("latin-1")))
    return found


def _looks_at_itself(nodes: Sequence[ast.AST], strings: set[str]) -> bool:
    """Whether anything in a file may make its text or its names a part of what it does."""
    if not _WITNESSES.isdisjoint(strings):
        return True
    plain = set()
    for node in nodes:
        match node:
            case ast.Call(func=ast.Name(id=name) as called, args=[_, ast.Constant(value=str()), *_]) if (
                name in _BY_TEXT
            ):
                plain.add(id(called))
            case ast.Name(id=name):
                if name in _WITNESSES or name in _CALLED_WITNESSES or (name in _BY_TEXT and id(node) not in plain):
                    return True
            case ast.Attribute(attr=name) | ast.keyword(arg=name) | ast.FunctionDef(name=name) if name in _WITNESSES:
                return True
            case ast.MatchClass(kwd_attrs=names) if not _WITNESSES.isdisjoint(names):
                return True
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                modules = {part for alias in aliases for part in alias.name.split(".")}
                modules |= set((getattr(node, "module", None) or "").split("."))
                if not modules.isdisjoint(_WITNESSES):
                    return True
    return False


def _looks_at_python(words: set[str]) -> bool:
    """Whether native code may ask the interpreter for names or texts of the file."""
    return not _CALLED_WITNESSES.isdisjoint(words) or any(word.startswith(_INTERFACE) for word in words)
