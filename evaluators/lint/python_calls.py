"""The rules on calls of a kernel's Python whose arguments matter."""

import ast
import re

from kbevolve.evaluators.lint.marks import Marks
from kbevolve.evaluators.lint.operations import is_heavy
from kbevolve.evaluators.lint.python_names import PythonNames
from kbevolve.evaluators.lint.python_scopes import NameScope
from kbevolve.evaluators.lint.tables import PATTERNS, PROCESS_FILES

#: Programs that a kernel may start: torch.utils.cpp_extension starts them as well.
_COMPILERS = re.compile(
    r"(?:\S*/)?\s*(nvcc|gcc|g\+\+|cc|c\+\+|clang|clang\+\+|hipcc|ptxas|ninja|cuobjdump|nvdisasm)(-\d+)?(\s|$)"
)
#: Namespaces of torch's own operators, which a kernel may call but not replace.
_TORCHS_OPERATORS = re.compile(r"(aten|prims|quantized|inductor|mkldnn)(::|$)")
#: A library of functions that getattr looks into.
_LIBRARY = re.compile(r"(torch|numpy)(\.(nn\.functional|ops\.aten|linalg|fft|Tensor(\(\))?|_C\.\w+))?")


def check_call(name: str, node: ast.Call, scope: NameScope, names: PythonNames, marks: Marks) -> None:
    """Add to `marks` what a call of a dotted name does with its arguments."""
    arguments = node.args
    keywords = {keyword.arg: keyword.value for keyword in node.keywords}
    first = names.text(arguments[0], scope) if arguments else None
    if PATTERNS["runs_text"].fullmatch(name):
        marks.tag("exec")
    elif PATTERNS["starts_program"].fullmatch(name):
        # The first of several words is the program.
        meanings = names.of(arguments[0], scope) if arguments else ()
        program = next((meaning[1:] for meaning in meanings if isinstance(meaning, str) and meaning[0] == '"'), "")
        marks.add([("subprocess", not _COMPILERS.match(program.strip() + " "))])
    elif PATTERNS["loads_library"].fullmatch(name):
        _loads(name, arguments, first, marks)
    match name:
        case "builtins.getattr" if len(arguments) > 1 and names.text(arguments[1], scope) is None:
            for base in names.names(arguments[0], scope):
                # The operation is unknown, so that it may be any.
                marks.operation("heavy" if _LIBRARY.fullmatch(base) else "", f"getattr({base}, …)")
        case "builtins.__import__" | "importlib.import_module" if first is None:
            marks.tag("exec")
        case "builtins.open" | "io.open" | "os.fdopen" | "pathlib.Path.open":
            modes = [*arguments[1:2], *([keywords["mode"]] if "mode" in keywords else [])]
            if any(set("wax+") & set(names.text(mode, scope) or "w") for mode in modes):
                marks.tag("file-write")
            if first is not None and PROCESS_FILES.match(first):
                marks.refuse("frames")
        case "builtins.type" | "types.new_class" if len(arguments) > 1:
            if "torch.Tensor" in names.names(arguments[1], scope):
                marks.tag("tensor-subclass")
        case "torch.set_float32_matmul_precision" if first != "highest":
            marks.tag("half-types")
        case "triton.language.dot" | "triton.language.dot_scaled":
            # TF32 is the default.
            exact = "input_precision" in keywords and names.text(keywords["input_precision"], scope) == "ieee"
            if not exact and getattr(keywords.get("allow_tf32"), "value", True):
                marks.tag("half-types")
        case "torch.library.Library" | "torch.library.impl" | "torch.library.register_kernel":
            if _TORCHS_OPERATORS.match(first or ""):
                marks.refuse("patches-torch")
        case "operator.methodcaller" | "operator.attrgetter" if first and is_heavy(first.rpartition(".")[2]):
            marks.operation("heavy", f".{first}")


def _loads(name: str, arguments: list[ast.expr], path: str | None, marks: Marks) -> None:
    if name.startswith(("ctypes.cdll.", "ctypes.pydll.")) and not name.endswith("LoadLibrary"):
        path = name.rpartition(".")[2]
    nothing = not arguments or (isinstance(arguments[0], ast.Constant) and arguments[0].value is None)
    # A path put together at run time is that of a library built here, if anything is built here at all.
    if nothing or path is not None:
        marks.tag("foreign-library")
    marks.loads_library = True
    if path is not None and PATTERNS["compute_libraries"].match(path.rpartition("/")[2]):
        marks.operation("heavy", path.rpartition("/")[2])
