"""The rules on what a kernel's Python mentions, calls and inherits from."""

import ast
import re

from kbevolve.evaluators.lint.operations import MODULE_CLASS, is_heavy, operation_weight, weight_of
from kbevolve.evaluators.lint.python_names import ConstantText, PythonNames
from kbevolve.evaluators.lint.python_rules import (
    BUILDERS,
    COMPILERS,
    COMPUTE_LIBRARIES,
    LIBRARY_LOADER,
    PROCESS_FILES,
    PROTECTED,
    STARTS_PROGRAM,
    rules_of,
)
from kbevolve.evaluators.lint.python_scopes import NameScope
from kbevolve.evaluators.lint.tags import Marks

#: Namespaces of torch's own operators, which a kernel may call but not replace.
_TORCHS_OPERATORS = re.compile(r"(aten|prims|quantized|inductor|mkldnn)(::|$)")
_DECODER = re.compile(r"(base64|binascii|codecs|zlib|lzma|bz2|gzip|pickle|marshal|builtins\.\w+\.fromhex)(\.|$)")
_RUNS_TEXT = re.compile(r"builtins\.(exec|eval|compile)")
#: A library of functions that getattr looks into.
_LIBRARY = re.compile(r"(torch|numpy)(\.(nn\.functional|ops\.aten|linalg|fft|Tensor(\(\))?|_C\.\w+))?")


class PythonCalls:
    """Adds to `marks` what names, calls and base classes mean."""

    def __init__(self, names: PythonNames, marks: Marks) -> None:
        self._names = names
        self._marks = marks

    def name(self, name: str, *, called: bool, running: bool) -> None:
        """A dotted name is mentioned, or called; an operation counts unless it only prepares the model."""
        for tag, refused in rules_of(name):
            if refused:
                self._marks.refuse(tag)
            else:
                self._marks.tag(tag)
        self._marks.decodes |= _DECODER.match(name) is not None
        if name in BUILDERS or name.startswith(("triton.jit", "torch._inductor.async_compile.")):
            self._marks.own_kernel = True
            return
        if not called and _RUNS_TEXT.fullmatch(name):
            self._marks.tag("exec")
            self._marks.runs_text = True
        base, _, last = name.rpartition(".")
        if base.partition(".")[0] in PROTECTED and not base.startswith(("builtins.", "torch.Tensor")):
            changes = {"update", "setdefault", "pop", "clear", "__setitem__", "__delitem__"}
            if last in {"__setattr__", "__delattr__"} or (base.endswith("__dict__") and last in changes):
                self._marks.refuse("patches-torch")
        # What is kept for later counts wherever it is mentioned; of a tensor's attributes only products do.
        if running or not called:
            weight = (
                "" if MODULE_CLASS.fullmatch(name) and not name.endswith(("forward", "_call__")) else weight_of(name)
            )
            if called or weight == "heavy" or base != "torch.Tensor":
                self._marks.operation(weight, _as_written(name))

    def inherit(self, base: ast.expr, scope: NameScope, *, overridden: bool) -> None:
        """A class of the file has this base."""
        for name in self._names.names(base, scope):
            if name in {"torch.Tensor", "torch._tensor.Tensor"}:
                self._marks.tag("tensor-subclass")
            elif MODULE_CLASS.fullmatch(name) and not overridden:
                self._marks.operation(weight_of(name), name.rpartition(".")[2])

    def check(self, name: str, node: ast.Call, scope: NameScope) -> None:
        """A call of a dotted name, whose arguments matter."""
        arguments = node.args
        first = self._names.text(arguments[0], scope) if arguments else None
        if _RUNS_TEXT.fullmatch(name) and arguments:
            self._marks.tag("exec")
            # A constant text is read as a part of the kernel.
            self._marks.runs_text |= not isinstance(arguments[0], ast.Constant)
        elif STARTS_PROGRAM.fullmatch(name):
            self._starts(arguments, scope)
        elif LIBRARY_LOADER.fullmatch(name):
            self._loads(name, arguments, first)
        match name:
            case "builtins.getattr" | "inspect.getattr_static" if len(arguments) > 1:
                if self._names.text(arguments[1], scope) is None:
                    for base in self._names.names(arguments[0], scope):
                        # The operation is unknown, so that it may be any.
                        self._marks.operation("heavy" if _LIBRARY.fullmatch(base) else "", f"getattr({base}, …)")
            case "builtins.__import__" | "importlib.import_module" if first is None:
                self._marks.tag("exec")
            case "builtins.open" | "io.open" | "os.fdopen" | "pathlib.Path.open":
                modes = [*arguments[1:2], *(keyword.value for keyword in node.keywords if keyword.arg == "mode")]
                if any(set("wax+") & set(self._names.text(mode, scope) or "w") for mode in modes):
                    self._marks.tag("file-write")
                if first is not None and PROCESS_FILES.match(first):
                    self._marks.refuse("frames")
            case "builtins.type" | "types.new_class" if len(arguments) > 1:
                if "torch.Tensor" in self._names.names(arguments[1], scope):
                    self._marks.tag("tensor-subclass")
            case "torch.set_float32_matmul_precision" if first != "highest":
                self._marks.tag("half-types")
            case "triton.language.dot" | "triton.language.dot_scaled" if not self._is_exact(node, scope):
                self._marks.tag("half-types")
            case "torch.compile":
                if any(self._names.text(keyword.value, scope) == "reduce-overhead" for keyword in node.keywords):
                    self._marks.tag("cuda-graph")
            case "torch.library.Library" | "torch.library.impl" | "torch.library.register_kernel":
                if _TORCHS_OPERATORS.match(first or ""):
                    self._marks.refuse("patches-torch")
            case "operator.methodcaller" | "operator.attrgetter" if first:
                method = first.rpartition(".")[2]
                self._marks.operation(operation_weight(method) if is_heavy(method) else "", f".{method}")
            case "sys.modules.get" | "sys.modules.pop" | "sys.modules.setdefault" | "sys.modules.__getitem__":
                if first is None or first.partition(".")[0] in PROTECTED:
                    self._marks.refuse("frames")

    def _is_exact(self, node: ast.Call, scope: NameScope) -> bool:
        """Whether a product in Triton says that it wants fp32: TF32 is the default."""
        return any(
            (keyword.arg == "input_precision" and self._names.text(keyword.value, scope) == "ieee")
            or (keyword.arg == "allow_tf32" and isinstance(keyword.value, ast.Constant) and not keyword.value.value)
            for keyword in node.keywords
        )

    def _starts(self, arguments: list[ast.expr], scope: NameScope) -> None:
        meanings = self._names.of(arguments[0], scope) if arguments else ()
        program = next((meaning.text for meaning in meanings if isinstance(meaning, ConstantText)), "")
        if COMPILERS.match(program.strip() + " "):
            self._marks.tag("subprocess")
        else:
            self._marks.refuse("subprocess")

    def _loads(self, name: str, arguments: list[ast.expr], path: str | None) -> None:
        if name.startswith(("ctypes.cdll.", "ctypes.pydll.")) and not name.endswith("LoadLibrary"):
            path = name.rpartition(".")[2]
        nothing = not arguments or (isinstance(arguments[0], ast.Constant) and arguments[0].value is None)
        # A path put together at run time is that of a library built here, if anything is built here at all.
        if nothing or path is not None:
            self._marks.tag("foreign-library")
        self._marks.loads_library = True
        if path is not None and COMPUTE_LIBRARIES.match(path.rpartition("/")[2]):
            self._marks.operation("heavy", path.rpartition("/")[2])


def _as_written(name: str) -> str:
    """An operation as a reader knows it: ``.sum``, ``functional.relu``, ``extern_kernels.addmm``."""
    short = name.removesuffix(".default").removesuffix(".out").removesuffix(".forward").removeprefix("torch.")
    return short.removeprefix("Tensor") if short.startswith("Tensor.") else ".".join(short.split(".")[-2:])
