"""The rules on what a kernel's Python mentions, calls and inherits from."""

import ast
import re

from kbevolve.evaluators.lint.known_names import BUILDERS, LIBRARY_LOADERS
from kbevolve.evaluators.lint.meaning import Meaning
from kbevolve.evaluators.lint.operations import is_heavy, operation_weight, weight_of
from kbevolve.evaluators.lint.rules import (
    COMPILERS,
    COMPUTE_LIBRARIES,
    PROCESS_FILES,
    PROTECTED,
    STARTS_PROGRAM,
    rule_of,
)
from kbevolve.evaluators.lint.scopes import Scope
from kbevolve.evaluators.lint.stores import Stores
from kbevolve.evaluators.lint.tags import Marks
from kbevolve.evaluators.lint.values import Group, Named, Text

_MODULE_CLASS = re.compile(r"torch\.nn\.(modules\.\w+\.)?[A-Z]\w*")
#: Namespaces of torch's own operators, which a kernel may call but not replace.
_TORCHS_OPERATORS = re.compile(r"(aten|prims|quantized|inductor|mkldnn)(::|$)")
_DECODERS = (
    "base64",
    "binascii",
    "codecs",
    "zlib",
    "lzma",
    "bz2",
    "gzip",
    "pickle",
    "builtins.bytes.fromhex",
    "marshal",
)

_WRITING = frozenset("wax+")


class Calls:
    """Tells `marks` what names, calls and base classes mean."""

    def __init__(self, meaning: Meaning, stores: Stores, marks: Marks) -> None:
        self._meaning = meaning
        self._stores = stores
        self._marks = marks

    def name(self, name: str, *, called: bool, running: bool) -> None:
        """A dotted name is mentioned, or called; an operation counts unless it only prepares the model."""
        rule = rule_of(name)
        if rule is not None:
            tag, refused = rule
            if refused:
                self._marks.refuse(tag)
            else:
                self._marks.tag(tag)
        if name.startswith(_DECODERS):
            self._marks.decodes = True
        if name.startswith(("sys.modules.values", "sys.modules.items", "sys.modules.keys", "sys.modules.copy")):
            self._marks.refuse("frames")
        if name in BUILDERS or name.startswith(("triton.jit", "torch._inductor.async_compile.")):
            self._marks.own_kernel = True
            return
        if name == "contextlib.suppress":
            self._marks.tag("try-except-fallback")
        elif name in {"builtins.id", "torch.Tensor.data_ptr"}:
            self._marks.tag("data-pointer")
        elif name in {"builtins.exec", "builtins.eval"} and not called:
            self._marks.tag("exec")
            self._marks.runs_text = True
        elif name == "builtins.setattr" and not called:
            self._marks.tag("patches-torch")
        self._stores.check_name(name)
        if _MODULE_CLASS.fullmatch(name) is None and (running or not called):
            weight = weight_of(name)
            self._marks.operation(weight, _as_written(name))

    def inherit(self, base: ast.expr, scope: Scope, *, overridden: bool) -> None:
        """A class of the file has this base."""
        for name in self._meaning.names(base, scope):
            if name in {"torch.Tensor", "torch._tensor.Tensor"}:
                self._marks.tag("tensor-subclass")
            elif _MODULE_CLASS.fullmatch(name) and not overridden:
                self._marks.operation(weight_of(name), name.rpartition(".")[2])

    def check(self, name: str, node: ast.Call, scope: Scope, running: bool) -> None:
        """Calls whose arguments matter."""
        arguments = node.args
        match name:
            case "builtins.exec" | "builtins.eval" | "builtins.compile" if arguments:
                self._runs(arguments[0], scope)
            case "builtins.__import__" | "importlib.import_module":
                self._imports(arguments, scope)
            case "builtins.open" | "io.open" | "os.fdopen" | "pathlib.Path.open":
                self._opens(node, scope)
            case "builtins.type" | "types.new_class" if len(arguments) >= 2:
                for value in self._meaning.of(arguments[1], scope):
                    if isinstance(value, Group):
                        self._bases(value)
            case "torch.set_float32_matmul_precision":
                if not arguments or self._meaning.text(arguments[0], scope) != "highest":
                    self._marks.tag("half-types")
            case "triton.language.dot" | "triton.language.dot_scaled":
                self._product(node, scope)
            case "torch.compile":
                if any(self._meaning.text(keyword.value, scope) == "reduce-overhead" for keyword in node.keywords):
                    self._marks.tag("cuda-graph")
            case "torch.library.Library" | "torch.library.impl" | "torch.library.register_kernel":
                if arguments and _TORCHS_OPERATORS.match(self._meaning.text(arguments[0], scope) or ""):
                    self._marks.refuse("patches-torch")
            case "operator.methodcaller" if arguments:
                method = self._meaning.text(arguments[0], scope)
                self._marks.operation(operation_weight(method) if method and is_heavy(method) else "", f".{method}")
            case "operator.attrgetter" if arguments:
                self._attributes(self._meaning.text(arguments[0], scope) or "")
            case "sys.modules.get" | "sys.modules.pop" | "sys.modules.setdefault" | "sys.modules.__getitem__":
                key = self._meaning.text(arguments[0], scope) if arguments else None
                if key is None or key.partition(".")[0] in PROTECTED:
                    self._marks.refuse("frames")
        if name in STARTS_PROGRAM:
            self._starts(arguments, scope)
        if name in LIBRARY_LOADERS or name.startswith(("ctypes.cdll.", "ctypes.pydll.")):
            self._loads(name, arguments, scope)

    def _runs(self, code: ast.expr, scope: Scope) -> None:
        self._marks.tag("exec")
        # A constant text is read as a part of the kernel.
        self._marks.runs_text |= not isinstance(code, ast.Constant)

    def _imports(self, arguments: list[ast.expr], scope: Scope) -> None:
        if not arguments or self._meaning.text(arguments[0], scope) is None:
            self._marks.tag("exec")

    def _opens(self, node: ast.Call, scope: Scope) -> None:
        modes = [*node.args[1:2], *(keyword.value for keyword in node.keywords if keyword.arg == "mode")]
        if any(_WRITING & set(self._meaning.text(mode, scope) or "w") for mode in modes):
            self._marks.tag("file-write")
        path = self._meaning.text(node.args[0], scope) if node.args else None
        if path is not None and PROCESS_FILES.match(path):
            self._marks.refuse("frames")

    def _bases(self, bases: Group) -> None:
        for value in bases.elements:
            if isinstance(value, Named) and value.name == "torch.Tensor":
                self._marks.tag("tensor-subclass")

    def _product(self, node: ast.Call, scope: Scope) -> None:
        """Triton multiplies fp32 in TF32 unless it is told otherwise."""
        for keyword in node.keywords:
            if keyword.arg == "input_precision" and self._meaning.text(keyword.value, scope) == "ieee":
                return
            if keyword.arg == "allow_tf32" and isinstance(keyword.value, ast.Constant) and not keyword.value.value:
                return
        self._marks.tag("half-types")

    def _attributes(self, path: str) -> None:
        last = path.rpartition(".")[2]
        if is_heavy(last):
            self._marks.operation("heavy", last)

    def _starts(self, arguments: list[ast.expr], scope: Scope) -> None:
        command = None
        for value in self._meaning.of(arguments[0], scope) if arguments else ():
            match value:
                case Text(text) | Group(elements=(Text(text), *_)):
                    command = text
        if command is not None and COMPILERS.match(command.strip() + " "):
            self._marks.tag("subprocess")
        else:
            self._marks.refuse("subprocess")

    def _loads(self, name: str, arguments: list[ast.expr], scope: Scope) -> None:
        path = self._meaning.text(arguments[0], scope) if arguments else None
        if name.startswith(("ctypes.cdll.", "ctypes.pydll.")) and not name.endswith("LoadLibrary"):
            path = name.rpartition(".")[2]
        nothing = not arguments or (isinstance(arguments[0], ast.Constant) and arguments[0].value is None)
        # A path put together at run time is that of a library built here, if anything is built here at all.
        built_here = path is None or " " in path
        if nothing or not built_here:
            self._marks.tag("foreign-library")
        self._marks.loads_library = True
        if path is not None and COMPUTE_LIBRARIES.match(path.rpartition("/")[2]):
            self._marks.operation("heavy", path.rpartition("/")[2])


def _as_written(name: str) -> str:
    """An operation as a reader knows it: ``.sum``, ``nn.functional.relu``, ``extern_kernels.addmm``."""
    short = name.removesuffix(".default").removesuffix(".out").removesuffix(".forward").removeprefix("torch.")
    if short.startswith("Tensor."):
        return short.removeprefix("Tensor")
    return ".".join(short.split(".")[-2:])
