"""Reads a kernel's Python: one walk over its syntax tree, each expression read for what it means."""

import ast
from collections.abc import Iterable
from typing import NamedTuple

from kbevolve.evaluators.lint.marks import Marks
from kbevolve.evaluators.lint.operations import COMMON, HEAVY, KERNEL_LIBRARIES, MODULE_CLASS, weight_of
from kbevolve.evaluators.lint.python_calls import check_call
from kbevolve.evaluators.lint.python_names import BUILT, MEMBERS, PythonNames, canonical, operands_of
from kbevolve.evaluators.lint.python_scopes import TENSOR, Function, NameScope, PythonScopes, preparing_functions
from kbevolve.evaluators.lint.python_stores import PythonStores
from kbevolve.evaluators.lint.python_unreadable import CODE_OBJECTS, UnreadableCode
from kbevolve.evaluators.lint.tables import BUILDERS, EXPECTED_MODULES, PATTERNS, rules_of, table

_ESCAPES = table("escapes")
_NATIVE_MEMORY = table("native_memory")
#: What makes a kernel of a function, in which operators and methods are the kernel's own.
_KERNEL_DECORATORS = (
    *("triton.", "torch._inductor.runtime.triton_heuristics."),
    *(
        "tilelang.jit",
        "tilelang.language.prim_func",
        "tilelang.language.macro",
        "cutlass.cute.jit",
        "cutlass.cute.kernel",
    ),
)


class PythonContext(NamedTuple):
    """How a piece of syntax is read."""

    scope: NameScope
    #: Whether a call of the model may run it.
    running: bool
    #: Whether it belongs to a kernel in Python (`_KERNEL_DECORATORS`).
    kernel: bool = False
    #: Whether strings in it may be code; messages, and parts of a string that was read as a whole, are not.
    code: bool = True


class PythonReader:
    """One reading of one Python text; `marks` receives what it finds."""

    def __init__(self, tree: ast.Module, marks: Marks, *, running: bool, documentation: bool) -> None:
        """`documentation`: whether strings that stand alone are read, too."""
        self._tree = tree
        self._documentation = documentation
        self._running = running
        self._marks = marks
        self._scopes = PythonScopes(tree)
        self._names = PythonNames(self._scopes)
        self._preparing = preparing_functions(tree)
        self._stores = PythonStores(self._names, marks)
        self._unreadable = UnreadableCode(self._names, marks)
        #: Strings that may be code of another language, each once.
        self.texts: dict[str, None] = {}
        #: Strings that are run as Python.
        self.code = self._unreadable.code

    def read(self) -> None:
        """Walk the file. Iterative: a legal file may nest deeper than Python's own stack."""
        stack: list[tuple[ast.AST, PythonContext]] = [(self._tree, PythonContext(self._scopes.module, self._running))]
        while stack:
            stack.extend(self._enter(*stack.pop()))
        self._unreadable.finish()

    def _enter(self, node: ast.AST, at: PythonContext) -> Iterable[tuple[ast.AST, PythonContext]]:
        """Read one node; the nodes below it that remain to be read."""
        below: Iterable[ast.AST] = ast.iter_child_nodes(node)
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                return self._function(node, at)
            case ast.ClassDef(body=body):
                self._inherit(node, at)
                inner = PythonContext(self._scopes.by_node[node], False, at.kernel)
                outside = [*node.decorator_list, *node.bases, *node.keywords]
                return [*((child, at) for child in outside), *((child, inner) for child in body)]
            case ast.Import() | ast.ImportFrom():
                self._import(node)
            case ast.Call():
                below = self._call(node, at)
            case ast.Name(ctx=ast.Load()) | ast.Attribute(ctx=ast.Load()):
                self._mention(node, at)
            case ast.Subscript(value=base, slice=key, ctx=ast.Load()):
                self._unreadable.check_item(base, key, at.scope)
            case ast.MatchClass(kwd_attrs=attributes) if attributes:
                self._unreadable.check_pattern(attributes)
                for attribute in HEAVY.intersection(attributes):
                    self._marks.operation("heavy", f".{attribute}")
            case ast.Tuple(elts=[ast.Constant(value=str()), *members]):  # a field of ctypes.Structure
                self._unreadable.check_members(members, at.scope)
            case ast.Constant(value=str() | bytes() as text) if at.code and text:
                self.texts[text if isinstance(text, str) else text.decode("latin-1")] = None
            case ast.BinOp() | ast.UnaryOp() | ast.Compare() | ast.JoinedStr() | ast.AugAssign():
                self._stores.check(node, at.scope, at.running)
                return self._operator(node, at)
            case ast.Expr(value=ast.Constant()) if not self._documentation:
                return []
            case ast.Raise():
                at = at._replace(code=False)
            case ast.ExceptHandler() if not any(isinstance(inner, ast.Raise) for inner in ast.walk(node)):
                self._marks.tag("try-except-fallback")
            case _:
                self._stores.check(node, at.scope, at.running)
        return [(child, at) for child in below]

    def _function(self, node: Function, at: PythonContext) -> Iterable[tuple[ast.AST, PythonContext]]:
        inner = self._scopes.by_node[node]
        running = getattr(node, "name", "lambda") not in self._preparing
        defaults = [default for default in [*node.args.defaults, *node.args.kw_defaults] if default is not None]
        decorators: list[ast.expr] = getattr(node, "decorator_list", [])
        kernel = any(
            name.startswith(_KERNEL_DECORATORS)
            for decorator in decorators
            for name in self._names.names(decorator.func if isinstance(decorator, ast.Call) else decorator, at.scope)
        )
        self._marks.own_kernel |= kernel
        if running and any(isinstance(default, ast.Dict | ast.List | ast.Set) for default in defaults):
            self._marks.tag("module-cache")
        within = at._replace(scope=inner, running=running, kernel=at.kernel or kernel)
        body = [node.body] if isinstance(node, ast.Lambda) else node.body
        return [*((child, at) for child in [*defaults, *decorators]), *((child, within) for child in body)]

    def _inherit(self, node: ast.ClassDef, at: PythonContext) -> None:
        overridden = any(isinstance(member, ast.FunctionDef) and member.name == "forward" for member in node.body)
        for name in [name for base in node.bases for name in self._names.names(base, at.scope)]:
            if name in {"torch.Tensor", "torch._tensor.Tensor"}:
                self._marks.tag("tensor-subclass")
            elif MODULE_CLASS.fullmatch(name) and not overridden:
                self._marks.operation(weight_of(name), name.rpartition(".")[2])

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        module = "" if isinstance(node, ast.Import) else "." * node.level + f"{node.module or ''}."
        for alias in node.names:
            self._named(canonical(module + alias.name), called=True, running=False)
            root = (module + alias.name).partition(".")[0]
            if root in KERNEL_LIBRARIES or (root and root not in EXPECTED_MODULES and not rules_of(root)):
                self._marks.tag("third-party")

    def _named(self, name: str, *, called: bool, running: bool) -> None:
        """A dotted name is mentioned, or called; an operation counts unless it only prepares the model."""
        self._marks.add(rules_of(name))
        self._marks.imports_files |= not called and PATTERNS["imports_files"].fullmatch(name) is not None
        if name in BUILDERS or name.startswith(("triton.jit", "torch._inductor.async_compile.")):
            self._marks.own_kernel = True
        elif not called and PATTERNS["runs_text"].fullmatch(name):
            self._marks.tag("exec")
            self._marks.refuse("unreadable")
        elif running or not called:
            # What is kept for later counts wherever it is mentioned; of a tensor's attributes only products do.
            made = MODULE_CLASS.fullmatch(name)
            weight = "" if made and made[2] is None else weight_of(name)
            if called or weight == "heavy" or name.rpartition(".")[0] != "torch.Tensor":
                self._marks.operation(weight, name.removeprefix("torch.").removeprefix("Tensor"))

    def _call(self, node: ast.Call, at: PythonContext) -> list[ast.AST]:
        function = node.func
        below: list[ast.AST] = [*node.args, *node.keywords]
        names = self._names.names(function, at.scope)
        if at.kernel:  # cute.Tensor has methods of the same names
            names = [name for name in names if not name.startswith("torch.Tensor.")]
        attribute = getattr(function, "attr", "")
        for name in names:
            if not name.endswith("()"):
                self._named(name, called=True, running=at.running)
                check_call(name, node, at.scope, self._names, self._marks)
            elif at.running and attribute not in MEMBERS:
                # An object of torch.nn, or a container of some.
                self._marks.operation(weight_of(name[:-2]), name[:-2].rpartition(".")[2])
        self._stores.check_call(node, at.scope, at.running)
        self._unreadable.check_call(node, names, at.scope)
        match function:
            case ast.Attribute(value=base):
                self._escape(function, at)
                unknown = at.running and not at.kernel and not self._names.of(function, at.scope)
                if unknown and attribute in HEAVY - COMMON:
                    self._marks.operation("heavy", f".{attribute}")
                below.append(base)
            case ast.Name() if function.id != "Model":
                pass
            case _:
                below.append(function)
        for name in self._names.names(node, at.scope):
            # getattr(torch, "mm"), importlib.import_module("torch"): a name by another way.
            if not name.endswith("()"):
                self._named(name, called=False, running=at.running)
        return below

    def _mention(self, node: ast.Name | ast.Attribute, at: PythonContext) -> None:
        for name in self._names.names(node, at.scope):
            if not name.endswith("()") and not (at.kernel and name.startswith("torch.Tensor.")):
                self._named(name, called=False, running=at.running)
        if isinstance(node, ast.Attribute):
            self._escape(node, at)
        elif node.id in {"__loader__", "__spec__"}:
            self._marks.imports_files = True
        elif node.id == "Model" and at.scope.owner_of("Model") is None:
            self._marks.tag("reference-copied")

    def _escape(self, node: ast.Attribute, at: PythonContext) -> None:
        """An attribute whose name alone says something, on any object."""
        if node.attr in _ESCAPES:
            self._marks.refuse("frames")
        if node.attr in CODE_OBJECTS:
            self._marks.refuse("unreadable")
        if node.attr in {"data_ptr", "_version", "untyped_storage", "mutable_data_ptr", "const_data_ptr"}:
            self._marks.tag("data-pointer")
        if node.attr in {"write_text", "write_bytes"}:
            self._marks.tag("file-write")
        if node.attr in _NATIVE_MEMORY and BUILT in self._names.of(node.value, at.scope):
            self._marks.refuse("foreign-library")

    def _operator(self, node: ast.AST, at: PythonContext) -> Iterable[tuple[ast.AST, PythonContext]]:
        operands = operands_of(node)
        if isinstance(getattr(node, "op", None), ast.Mult):
            self._unreadable.check_members(operands, at.scope)
        # A container of tensors written on the spot is no tensor.
        single = [operand for operand in operands if not isinstance(operand, ast.Tuple | ast.List | ast.Dict)]
        below = operands if isinstance(node, ast.BinOp) else ast.iter_child_nodes(node)
        if isinstance(node, ast.JoinedStr) or isinstance(getattr(node, "op", None), ast.Add):
            text = self._names.text(node, at.scope, unknown=" ") if isinstance(node, ast.expr) else None
            if text is not None:
                if at.code and text:
                    self.texts[text] = None
                at = at._replace(code=False)
        if at.running and not at.kernel:
            if isinstance(getattr(node, "op", None), ast.MatMult):
                self._marks.operation("heavy", "@")
            elif any(TENSOR in self._names.of(operand, at.scope) for operand in single):
                self._marks.operation("light", "operators on tensors")
        return [(child, at) for child in below]
