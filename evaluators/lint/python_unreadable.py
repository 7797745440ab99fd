"""The rules on code that a kernel runs and this lint cannot read: computed text, code objects, machine code."""

import ast
import re

from kbevolve.evaluators.lint.marks import Marks
from kbevolve.evaluators.lint.python_names import BUILT, PROTOTYPE, PythonNames, WrittenOut
from kbevolve.evaluators.lint.python_scopes import OWN, NameScope
from kbevolve.evaluators.lint.tables import PATTERNS, table, words

#: Attributes of functions and code objects.
CODE_OBJECTS = table("code_objects")
_ESCAPES = table("escapes")
_EXECUTORS = table("executors")
#: Functions that run a text, as `operator.attrgetter` may be asked for them.
_RUNNERS = words("exec eval compile loads __import__ import_module")
#: Arguments by keyword of the functions that run a text, which are no text.
_NO_TEXT = words(
    "globals locals number repeat timer flags dont_inherit optimize mode filename num_threads label sub_label"
)
#: Functions that read objects back, and the argument that keeps them from running what the file says.
_READS_OBJECTS = {"torch.load": ("weights_only", True), "numpy.load": ("allow_pickle", False)} | {
    f"numpy.lib.{name}": ("allow_pickle", False) for name in ("format.read_array", "npyio.NpzFile")
}
#: Methods that write to a file, and those that write bytes.
_WRITES_BYTES = words("write_bytes tofile extract extractall unpack_archive writestr")
_WRITES = _WRITES_BYTES | words("write write_text writelines writerow writerows")
#: Functions of the C library that give memory which may hold machine code.
_MAPS = words("mmap mmap64 mremap remap_file_pages shmat")
_PROT_EXEC = 4
_DATA = words("mmap mmap.PROT_READ mmap.PROT_WRITE mmap.PROT_NONE")
#: How a module finds itself among the loaded ones.
_OWN_MODULE = words("__name__ __module__")


class UnreadableCode:
    """Adds to `marks` what the calls of one Python text run that cannot be read."""

    def __init__(self, names: PythonNames, marks: Marks) -> None:
        self._names = names
        self._marks = marks
        #: Constant texts that are run as Python, each once.
        self.code: dict[str, None] = {}
        #: Names that are changed by their texts; a star for any. And calls of `globals` that change none.
        self._changed: set[str] = set()
        self._namespaces: set[ast.expr] = set()
        #: Names whose one value was taken for all that they ever hold.
        self._trusted: set[str] = set()
        #: Whether a file is opened for bytes, and whether anything computed is written that may be some.
        self._opens_bytes = self._writes_computed = False

    def check_call(self, node: ast.Call, names: list[str], scope: NameScope) -> None:
        """A call of a function with these dotted names."""
        arguments = node.args
        attribute = getattr(node.func, "attr", "")
        for name in names:
            self._named(name, node, scope)
        for given in [*arguments, *(keyword.value for keyword in node.keywords)]:
            meanings = self._names.names(given, scope)
            whole = not {"builtins.getattr", "builtins.hasattr", "builtins.exec", "builtins.eval"}.intersection(names)
            if PROTOTYPE in meanings or (whole and {"builtins", "builtins.__dict__"}.intersection(meanings)):
                self._refuse()
        if PROTOTYPE in names and not self._is_function(arguments, scope):
            self._refuse()
        if isinstance(node.func, ast.Attribute):
            base = self._names.names(node.func.value, scope)
            if attribute in _WRITES:
                self._writes(arguments, scope, as_bytes=attribute in _WRITES_BYTES)
            if PROTOTYPE in base and attribute != "in_dll":
                self._refuse()
            if BUILT in base:
                self._built(attribute, arguments, scope)

    def check_pattern(self, attributes: list[str]) -> None:
        """``case object(eval=run)``: the attributes that a pattern asks for."""
        self._marks.add(("frames", True) for name in attributes if name in _ESCAPES)
        if not (_RUNNERS | CODE_OBJECTS).isdisjoint(attributes):
            self._refuse()

    def check_members(self, members: list[ast.expr], scope: NameScope) -> None:
        """``PROTOTYPE * 2`` or ``("field", PROTOTYPE)``: functions that ctypes reads from memory."""
        if any(PROTOTYPE in self._names.of(member, scope) for member in members):
            self._refuse()

    def check_item(self, base: ast.expr, key: ast.expr, scope: NameScope) -> None:
        """``base[key]``, which may be any function of a module."""
        text = self._names.text(key, scope)
        if text == "__builtins__" or (text in _MAPS and BUILT in self._names.of(base, scope)):
            self._refuse()
        for name in self._names.names(base, scope):
            module = name.removesuffix(".__dict__")
            any_module = name == "sys.modules" and getattr(key, "id", getattr(key, "attr", "")) not in _OWN_MODULE
            if text is None and (any_module or module in _EXECUTORS):
                self._refuse()
            self._marks.asks_unknown |= text is None and name == BUILT

    def finish(self) -> None:
        """Check what shows at the end: a name that was taken for constant must not be changed by code in a text."""
        self._marks.writes_bytes |= self._opens_bytes and self._writes_computed
        changed = self._changed.union(*(re.findall(r"\w+", text) for text in self.code))
        if self._trusted and ("*" in changed or not changed.isdisjoint(self._trusted)):
            self._refuse()

    def _named(self, name: str, node: ast.Call, scope: NameScope) -> None:
        arguments = node.args
        self._marks.writes_unknown |= PATTERNS["writes_files"].match(name) is not None
        self._marks.writes_bytes |= PATTERNS["writes_any_bytes"].match(name) is not None
        match name:
            case _ if PATTERNS["runs_text"].fullmatch(name):
                texts = arguments[: 2 if name.startswith("timeit.") else 1]
                others = [keyword.value for keyword in node.keywords if keyword.arg not in _NO_TEXT]
                for text in [*texts, *others]:
                    self._runs(text, scope, is_python=name.startswith(("builtins.", "timeit.")))
                self._namespaces.update(arguments[1:])
            case "builtins.__import__" | "importlib.import_module":
                if arguments and not self._written_out(arguments[0], scope):
                    self._refuse()
            case "builtins.getattr" | "builtins.setattr" | "inspect.getattr_static" if len(arguments) > 1:
                member = self._names.text(arguments[1], scope)
                base = self._names.names(arguments[0], scope)
                if member in _ESCAPES:
                    self._marks.refuse("frames")
                any_function = member is None and not _EXECUTORS.isdisjoint(base)
                if any_function or member in CODE_OBJECTS or (BUILT in base and member in _MAPS):
                    self._refuse()
                self._marks.asks_unknown |= member is None and BUILT in base
                if name == "builtins.setattr" and OWN not in base:
                    self._changed.add(member or "*")
            case "builtins.globals" | "builtins.locals" | "builtins.vars":
                # As the namespace of an `exec` it is honest: what that runs is read.
                self._changed |= set() if node in self._namespaces else {"*"}
            case "operator.attrgetter" | "operator.methodcaller" | "operator.itemgetter":
                asked = [self._names.text(one, scope) or "" for one in arguments]
                if any(member.rpartition(".")[2] in _RUNNERS for member in asked):
                    self._refuse()
            case "importlib.util.spec_from_file_location":
                path = self._names.text(arguments[1], scope, unknown=" ") if len(arguments) > 1 else None
                self._marks.imports_files |= not (path or "").endswith(".so")
            case "mmap.mmap":
                modes = [*arguments[3:4], *(word.value for word in node.keywords if word.arg in {"prot", None})]
                if any(self._is_executable(mode, scope) for mode in modes):
                    self._refuse()
            case "builtins.print" if any(word.arg != "sep" for word in node.keywords):
                self._writes(arguments, scope, as_bytes=False)
            case "torch.ops.load_library" | "torch.classes.load_library" | "numpy.ctypeslib.load_library":
                self._marks.loads_library = True
            case "os.write" | "os.pwrite":
                self._writes(arguments[1:], scope, as_bytes=True)
            case "builtins.open" | "io.open" | "os.fdopen" | "pathlib.Path.open":
                modes = [*arguments[1:2], *(word.value for word in node.keywords if word.arg in {"mode", None})]
                written = [self._names.text(mode, scope) or "wb" for mode in modes]
                self._opens_bytes |= any("b" in mode and bool(set("wax+") & set(mode)) for mode in written)
            case _ if PATTERNS["imports_files"].fullmatch(name):
                self._marks.imports_files = True
            case _ if PATTERNS["generates_code"].fullmatch(name):
                self._refuse()
            case _ if name in _READS_OBJECTS:
                keyword, safe = _READS_OBJECTS[name]
                given = [word.value for word in node.keywords if word.arg in {keyword, None}]
                if any(not (isinstance(value, ast.Constant) and value.value is safe) for value in given):
                    self._refuse()

    def _runs(self, text: ast.expr, scope: NameScope, *, is_python: bool) -> None:
        """A text is run; `timeit` takes a function as well."""
        written = self._written_out(text, scope)
        if written and is_python:
            self.code[written.text] = None
        elif not written and not (is_python and self._is_function([text], scope)):
            self._refuse()

    def _written_out(self, text: ast.expr, scope: NameScope) -> WrittenOut | None:
        """The text, if the file writes it out."""
        written = self._names.constants(text, scope)
        self._trusted |= frozenset() if written is None else written.names
        return written

    def _writes(self, arguments: list[ast.expr], scope: NameScope, *, as_bytes: bool) -> None:
        for given in arguments[:1]:
            if self._names.constants(given, scope) is None:
                self._marks.writes_unknown = True
                match given:
                    case ast.Call(func=ast.Attribute(attr="encode"), args=[]):
                        pass
                    case _:
                        self._writes_computed = True
                        self._marks.writes_bytes |= as_bytes

    def _built(self, attribute: str, arguments: list[ast.expr], scope: NameScope) -> None:
        """A method of a library, a builder, or what one of them made."""
        from_text = attribute == "triton" and not all(self._written_out(text, scope) for text in arguments[1:2])
        pointer = attribute == "cast" and any("(*)" in (self._names.text(one, scope) or "") for one in arguments[:1])
        if PATTERNS["cpp_libraries"].fullmatch(attribute):
            self._marks.operation("heavy", attribute)
        if attribute in _MAPS or attribute.startswith(("PyRun_", "PyEval_", "PyMarshal_")) or from_text or pointer:
            self._refuse()

    def _is_function(self, arguments: list[ast.expr], scope: NameScope) -> bool:
        """Whether the first argument is a function that the file defines."""
        return any(isinstance(meaning, ast.AST) for one in arguments[:1] for meaning in self._names.of(one, scope))

    def _is_executable(self, mode: ast.expr, scope: NameScope) -> bool:
        """Whether memory with this protection may hold code that runs."""
        for node in ast.walk(mode):
            match node:
                case ast.Name() | ast.Attribute():
                    meanings = set(self._names.names(node, scope))
                    if not meanings or not meanings <= _DATA:
                        return True
                case ast.Constant(value=value) if not isinstance(value, int) or value & _PROT_EXEC:
                    return True
                case ast.Constant() | ast.BinOp() | ast.BitOr() | ast.Load():
                    pass
                case _:
                    return True
        return False

    def _refuse(self) -> None:
        self._marks.refuse("unreadable")
