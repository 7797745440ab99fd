"""Reads a kernel's Python: one walk over its syntax tree, each expression read for what it means."""

import ast
from collections.abc import Iterable
from typing import NamedTuple

from kbevolve.evaluators.lint.operations import COMMON, DISTINCTIVE, HEAVY, operation_weight, weight_of
from kbevolve.evaluators.lint.python_calls import PythonCalls
from kbevolve.evaluators.lint.python_names import BUILT, MEMBERS, PythonNames, canonical, members_of_sum
from kbevolve.evaluators.lint.python_rules import ESCAPES, NATIVE_MEMORY, is_third_party
from kbevolve.evaluators.lint.python_scopes import Function, NameScope, PythonScopes, preparing_functions
from kbevolve.evaluators.lint.python_stores import PythonStores
from kbevolve.evaluators.lint.tags import Marks
from kbevolve.evaluators.lint.words import words

#: Calls whose strings are messages.
_PROSE = ("builtins.print", "warnings.", "logging.")
#: Methods that are taken for a tensor's on an object of unknown kind.
_TELLING = (HEAVY - COMMON) | DISTINCTIVE
#: Names whose mention makes documentation a part of the program.
_READS_DOCUMENTATION = words("__doc__ getdoc getsource getsourcelines __file__ linecache")


class PythonContext(NamedTuple):
    """How a piece of syntax is read."""

    scope: NameScope
    #: Whether a call of the model may run it.
    running: bool
    #: Whether it belongs to a Triton kernel, where operators and methods are the kernel's own.
    kernel: bool = False
    #: Whether strings in it may be code; messages, and parts of a string that was read as a whole, are not.
    code: bool = True


class PythonReader:
    """One reading of one Python text; `marks` receives what it finds."""

    def __init__(self, tree: ast.Module, marks: Marks, *, running: bool) -> None:
        self._tree = tree
        self._running = running
        self._marks = marks
        self._scopes = PythonScopes(tree)
        self._names = PythonNames(self._scopes)
        self._preparing = preparing_functions(tree)
        self._stores = PythonStores(self._names, marks)
        self._calls = PythonCalls(self._names, marks)
        #: Names that something reads.
        self._read = {
            getattr(node, "id", "") or getattr(node, "attr", "")
            for node in ast.walk(tree)
            if isinstance(getattr(node, "ctx", None), ast.Load)
        }
        self._reads_documentation = not self._read.isdisjoint(_READS_DOCUMENTATION)
        #: Strings that may be code of another language, each once.
        self.texts: dict[str, None] = {}

    def read(self) -> None:
        """Walk the file. Iterative: a legal file may nest deeper than Python's own stack."""
        stack: list[tuple[ast.AST, PythonContext]] = [(self._tree, PythonContext(self._scopes.module, self._running))]
        while stack:
            stack.extend(self._enter(*stack.pop()))

    def _enter(self, node: ast.AST, at: PythonContext) -> Iterable[tuple[ast.AST, PythonContext]]:
        """Read one node; the nodes below it that remain to be read."""
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                return self._function(node, at)
            case ast.ClassDef():
                return self._class(node, at)
            case ast.Import() | ast.ImportFrom():
                self._import(node)
                return []
            case ast.Call():
                return self._call(node, at)
            case ast.Name(ctx=ast.Load()) | ast.Attribute(ctx=ast.Load()):
                return self._mention(node, at)
            case ast.Constant(value=str() as text):
                self._text(text, at)
            case ast.Constant(value=bytes() as data):
                self._text(data.decode("latin-1"), at)
            case ast.BinOp() | ast.UnaryOp() | ast.Compare() | ast.JoinedStr() | ast.AugAssign():
                return self._operator(node, at)
            case ast.Expr(value=ast.Constant()) if not self._reads_documentation:
                return []
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant()) if name not in self._read:
                return []
            case ast.Raise():
                at = at._replace(code=False)
            case ast.Assert(test=test, msg=ast.expr() as message):
                return [(test, at), (message, at._replace(code=False))]
            case ast.ExceptHandler() if not any(isinstance(inner, ast.Raise) for inner in ast.walk(node)):
                self._marks.tag("try-except-fallback")
            case ast.arg():
                return []
        self._stores.check(node, at.scope, at.running)
        return [(child, at) for child in ast.iter_child_nodes(node)]

    def _function(self, node: Function, at: PythonContext) -> Iterable[tuple[ast.AST, PythonContext]]:
        inner = self._scopes.by_node[node]
        running = getattr(node, "name", "lambda") not in self._preparing
        defaults = [default for default in [*node.args.defaults, *node.args.kw_defaults] if default is not None]
        outside = [(child, at) for child in [*defaults, *getattr(node, "decorator_list", [])]]
        if isinstance(node, ast.Lambda):
            return [*outside, (node.body, at._replace(scope=inner, running=True))]
        # `kernel.fn` is the plain function again.
        kernel = "fn" not in self._read and any(
            name.startswith(("triton.", "torch._inductor.runtime.triton_heuristics."))
            for decorator in node.decorator_list
            for name in self._names.names(decorator.func if isinstance(decorator, ast.Call) else decorator, at.scope)
        )
        self._marks.own_kernel |= kernel
        if running and any(isinstance(default, ast.Dict | ast.List | ast.Set) for default in defaults):
            self._marks.tag("module-cache")
        return [*outside, *((child, PythonContext(inner, running, at.kernel or kernel)) for child in node.body)]

    def _class(self, node: ast.ClassDef, at: PythonContext) -> Iterable[tuple[ast.AST, PythonContext]]:
        defined = {member.name for member in node.body if isinstance(member, ast.FunctionDef)}
        for base in node.bases:
            self._calls.inherit(base, at.scope, overridden="forward" in defined)
        inner = PythonContext(self._scopes.by_node[node], False, at.kernel)
        outside = [*node.decorator_list, *node.bases, *node.keywords]
        return [*((child, at) for child in outside), *((child, inner) for child in node.body)]

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        module = "" if isinstance(node, ast.Import) else "." * node.level + f"{node.module or ''}."
        for alias in node.names:
            name = module + alias.name
            self._calls.name(canonical(name), called=True, running=False)
            if is_third_party(name):
                self._marks.tag("third-party")

    def _call(self, node: ast.Call, at: PythonContext) -> Iterable[tuple[ast.AST, PythonContext]]:
        function = node.func
        names = self._names.names(function, at.scope)
        attribute = getattr(function, "attr", "")
        for name in names:
            if not name.endswith("()"):
                self._calls.name(name, called=True, running=at.running)
                self._calls.check(name, node, at.scope)
            elif at.running and attribute not in MEMBERS:
                # An object of torch.nn, or a container of some.
                self._marks.operation(weight_of(name[:-2]), name[:-2].rpartition(".")[2])
        self._stores.check_call(node, at.scope, at.running)
        prose = any(name.startswith(_PROSE) or name.endswith(("Error", "Exception")) for name in names)
        inside = at._replace(code=at.code and not prose)
        below = [(child, inside) for child in [*node.args, *node.keywords]]
        match function:
            case ast.Attribute(value=base):
                self._escape(attribute, base, at)
                if not self._names.of(function, at.scope) and at.running and not at.kernel and attribute in _TELLING:
                    self._marks.operation(operation_weight(attribute), f".{attribute}")
                below.append((base, inside))
            case ast.Name(id="Model"):
                below.append((function, at))
            case ast.Name():
                pass
            case _:
                below.append((function, inside))
        for name in self._names.names(node, at.scope):
            # getattr(torch, "mm"), importlib.import_module("torch"): a name by another way.
            if not name.endswith("()"):
                self._calls.name(name, called=False, running=at.running)
        return below

    def _mention(self, node: ast.Name | ast.Attribute, at: PythonContext) -> Iterable[tuple[ast.AST, PythonContext]]:
        for name in self._names.names(node, at.scope):
            if not name.endswith("()") and not (at.kernel and name.startswith("torch.Tensor.")):
                self._calls.name(name, called=False, running=at.running)
        if isinstance(node, ast.Attribute):
            self._escape(node.attr, node.value, at)
            return [(node.value, at)]
        if node.id == "Model" and at.scope.owner_of("Model") is None:
            self._marks.tag("reference-copied")
        return []

    def _escape(self, name: str, base: ast.expr, at: PythonContext) -> None:
        """An attribute whose name alone says something, on any object."""
        if name in ESCAPES:
            self._marks.refuse("frames")
        if name in {"data_ptr", "_version", "untyped_storage", "mutable_data_ptr", "const_data_ptr"}:
            self._marks.tag("data-pointer")
        if name in {"write_text", "write_bytes"}:
            self._marks.tag("file-write")
        if name in NATIVE_MEMORY and BUILT in self._names.of(base, at.scope):
            self._marks.refuse("foreign-library")

    def _operator(self, node: ast.AST, at: PythonContext) -> Iterable[tuple[ast.AST, PythonContext]]:
        operands: list[ast.expr] = []
        below: list[ast.AST] = list(ast.iter_child_nodes(node))
        match node:
            case ast.JoinedStr() | ast.BinOp(op=ast.Add()):
                text = self._names.text(node, at.scope, unknown=" ")
                if text is not None:
                    self._text(text, at)
                    at = at._replace(code=False)
                elif isinstance(node, ast.BinOp):
                    operands = members_of_sum(node)
                    below = [*operands]
            case ast.BinOp(op=ast.MatMult()) | ast.AugAssign(op=ast.MatMult()) if at.running and not at.kernel:
                self._marks.operation("heavy", "@")
            case ast.BinOp(left=first, right=second) | ast.AugAssign(target=first, value=second):
                operands = [first, second]
            case ast.UnaryOp(op=ast.USub() | ast.Invert(), operand=operand):
                operands = [operand]
            case ast.Compare(left=left, comparators=others, ops=kinds):
                if not any(isinstance(kind, ast.Is | ast.IsNot | ast.In | ast.NotIn) for kind in kinds):
                    operands = [left, *others]
        if isinstance(node, ast.AugAssign):
            self._stores.check(node, at.scope, at.running)
        if at.running and not at.kernel and any(self._names.is_tensor(operand, at.scope) for operand in operands):
            self._marks.operation("light", "operators on tensors")
        return [(child, at) for child in below]

    def _text(self, text: str, at: PythonContext) -> None:
        if at.code and text:
            self.texts[text] = None
