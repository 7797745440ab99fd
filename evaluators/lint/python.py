"""The rules on a kernel's Python: one walk over its syntax tree, each expression read for what it stands for."""

import ast
from collections.abc import Iterable
from typing import NamedTuple

from kbevolve.evaluators.lint.calls import Calls
from kbevolve.evaluators.lint.known_names import CHILDREN, GROUP_METHODS
from kbevolve.evaluators.lint.meaning import Meaning
from kbevolve.evaluators.lint.operations import DISTINCTIVE, METHODS, operation_weight, weight_of
from kbevolve.evaluators.lint.reach import Reach
from kbevolve.evaluators.lint.rules import ESCAPES, NATIVE_MEMORY, is_third_party
from kbevolve.evaluators.lint.scopes import Scope, Scopes
from kbevolve.evaluators.lint.stores import Stores
from kbevolve.evaluators.lint.syntax import decorators
from kbevolve.evaluators.lint.tags import Marks
from kbevolve.evaluators.lint.values import Built, Group, Instance, Named, Value

#: Calls whose strings are for a reader.
_PROSE = (
    "builtins.print",
    "warnings.",
    "logging.",
    "builtins.Exception",
    "builtins.RuntimeError",
    "builtins.ValueError",
)
#: Methods that are torch's on an object of unknown kind too.
_TELLING = METHODS | DISTINCTIVE
#: Methods of a path, whatever the expression that it comes from.
_WRITERS = frozenset({"write_text", "write_bytes"})


class Place(NamedTuple):
    """Where in the file a piece of syntax stands."""

    scope: Scope
    #: Whether a call of the model may run it.
    running: bool = False
    #: Whether it is the body of a Triton kernel, where operators and methods are the kernel's own.
    kernel: bool = False
    #: Whether strings here may be code; not in messages, nor in parts of a string that was read as a whole.
    code: bool = True
    #: Whether the expression is what a call calls.
    callee: bool = False


class PythonRules:
    """One reading of one Python text; what it sees goes to `marks`."""

    def __init__(self, tree: ast.Module, marks: Marks, *, running: bool) -> None:
        self._tree = tree
        self._running = running
        self._marks = marks
        self._scopes = Scopes(tree)
        self._meaning = Meaning(self._scopes)
        self._reach = Reach(tree)
        self._stores = Stores(self._meaning, marks)
        self._calls = Calls(self._meaning, self._stores, marks)
        #: Strings that may be code of another language, each once.
        self.texts: dict[str, None] = {}

    def check(self) -> None:
        """Walk the file. Iterative: a legal file may nest deeper than Python's own stack."""
        stack: list[tuple[ast.AST, Place]] = [(self._tree, Place(self._scopes.module, self._running))]
        while stack:
            node, place = stack.pop()
            stack.extend(self._enter(node, place))
        if any(
            isinstance(value, Named) and value.name == "torch"
            for values in self._meaning.unknown_names
            for value in values
        ):
            self._marks.operation("light", "getattr(torch, …)")

    def _enter(self, node: ast.AST, place: Place) -> Iterable[tuple[ast.AST, Place]]:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                return self._function(node, place)
            case ast.ClassDef():
                return self._class(node, place)
            case ast.Expr(value=ast.Constant(value=str())) if not self._reach.reads_documentation:
                return []
            case ast.Import() | ast.ImportFrom():
                self._import(node)
                return []
            case ast.Call():
                return self._call(node, place)
            case ast.Name(ctx=ast.Load()) | ast.Attribute(ctx=ast.Load()) | ast.Subscript(ctx=ast.Load()):
                return self._mention(node, place)
            case ast.Constant(value=str() as text):
                self._text(text, place)
                return []
            case ast.Constant(value=bytes() as data):
                self._text(data.decode("latin-1"), place)
                return []
            case ast.BinOp() | ast.UnaryOp() | ast.Compare() | ast.JoinedStr() | ast.AugAssign():
                return self._operator(node, place)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str())) if self._is_unread(name):
                return []
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                inner = place._replace(scope=self._scopes.by_node.get(node, place.scope))
                return [(child, inner) for child in ast.iter_child_nodes(node)]
            case ast.Raise():
                place = place._replace(code=False)
            case ast.Assert(test=test, msg=message):
                return [(test, place), *([] if message is None else [(message, place._replace(code=False))])]
            case ast.ExceptHandler() if not any(isinstance(inner, ast.Raise) for inner in ast.walk(node)):
                self._marks.tag("try-except-fallback")
            case ast.arg():
                return []
        self._stores.check(node, place.scope, place.running)
        return [(child, place) for child in ast.iter_child_nodes(node)]

    # Definitions

    def _function(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, place: Place
    ) -> Iterable[tuple[ast.AST, Place]]:
        inner = self._scopes.by_node[node]
        defaults = [default for default in [*node.args.defaults, *node.args.kw_defaults] if default is not None]
        if isinstance(node, ast.Lambda):
            # Who calls it, and when, cannot be told by a name.
            return [*((default, place) for default in defaults), (node.body, place._replace(scope=inner, running=True))]
        running = self._reach.runs(node.name)
        kernel = any(
            value.startswith(("triton.", "torch._inductor.runtime.triton_heuristics."))
            for decorator in node.decorator_list
            for value in self._meaning.names(
                decorator.func if isinstance(decorator, ast.Call) else decorator, place.scope
            )
        )
        # `kernel.fn` is the plain function again.
        kernel = kernel and "fn" not in self._reach.read
        self._marks.own_kernel |= kernel
        self._stores.check_function(node, inner, running)
        if node.name == "__exit__" and any(
            isinstance(inside, ast.Return) and not (isinstance(inside.value, ast.Constant) and not inside.value.value)
            for inside in ast.walk(node)
            if not isinstance(inside, ast.Return) or inside.value is not None
        ):
            self._marks.tag("try-except-fallback")
        body = Place(inner, running, place.kernel or kernel)
        return [
            *((child, place) for child in [*node.decorator_list, *defaults]),
            *((child, body) for child in node.body),
        ]

    def _class(self, node: ast.ClassDef, place: Place) -> Iterable[tuple[ast.AST, Place]]:
        defined = {member.name for member in node.body if isinstance(member, ast.FunctionDef)}
        for base in node.bases:
            self._calls.inherit(base, place.scope, overridden="forward" in defined)
        inner = Place(self._scopes.by_node[node], False, place.kernel)
        return [
            *((child, place) for child in [*decorators(node), *node.bases, *node.keywords]),
            *((child, inner) for child in node.body),
        ]

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            module = "." * node.level + (node.module or "")
            names = [f"{module}.{alias.name}" for alias in node.names]
        for name in names:
            self._calls.name(name, called=True, running=False)
            if is_third_party(name):
                self._marks.tag("third-party")

    # Expressions

    def _call(self, node: ast.Call, place: Place) -> Iterable[tuple[ast.AST, Place]]:
        function = node.func
        values = self._meaning.of(function, place.scope)
        prose = False
        for value in values:
            self._called(value, node, place)
            prose |= isinstance(value, Named) and value.name.startswith(_PROSE)
        self._stores.check_call(node, place.scope, place.running)
        if isinstance(function, ast.Attribute):
            if not values and place.running and not place.kernel and function.attr in _TELLING:
                self._marks.operation(operation_weight(function.attr), f".{function.attr}")
            self._escape(function.attr, function.value, place)
        text = self._meaning.text(node, place.scope)
        if text is not None:
            self._text(text, place)
        inside = place._replace(code=place.code and not prose and text is None)
        for value in self._meaning.of(node, place.scope):
            # getattr(torch, "mm"), importlib.import_module("torch"): a name by another way.
            if isinstance(value, Named) and not place.callee:
                self._named(value.name, place, called=False)
        plain = inside._replace(callee=False)
        inner: list[ast.AST] = [*node.args, *node.keywords]
        match function:
            case ast.Attribute(value=base) | ast.Subscript(value=base):
                inner.append(base)
            case ast.Call():
                return [
                    (function, inside._replace(callee=True)),
                    *((child, plain) for child in inner),
                ]
            case ast.Name():
                pass
            case _:
                inner.append(function)
        return [(child, plain) for child in inner]

    def _called(self, value: Value, node: ast.Call, place: Place) -> None:
        match value:
            case Named(name):
                self._named(name, place, called=True)
                self._calls.check(name, node, place.scope, place.running)
            case Instance(of) if place.running:
                self._marks.operation(weight_of(of), of.rpartition(".")[2])
            case Group(elements) if place.running and getattr(node.func, "attr", "") not in CHILDREN | GROUP_METHODS:
                for element in elements:
                    if isinstance(element, Instance):
                        self._marks.operation(weight_of(element.of), element.of.rpartition(".")[2])

    def _mention(self, node: ast.expr, place: Place) -> Iterable[tuple[ast.AST, Place]]:
        for value in self._meaning.of(node, place.scope):
            if isinstance(value, Named):
                self._named(value.name, place, called=False)
        match node:
            case ast.Name(id=name):
                if name == "Model" and place.scope.owner_of(name) is None:
                    self._marks.tag("reference-copied")
                return []
            case ast.Attribute(value=base, attr=name):
                self._escape(name, base, place)
                return [(base, place)]
        return [(child, place) for child in ast.iter_child_nodes(node)]

    def _named(self, name: str, place: Place, *, called: bool) -> None:
        if place.kernel and name.startswith("torch.Tensor."):
            return
        self._calls.name(name, called=called, running=place.running)

    def _escape(self, name: str, base: ast.expr, place: Place) -> None:
        if name in ESCAPES:
            self._marks.refuse("frames")
        if name in {"data_ptr", "_version", "untyped_storage", "mutable_data_ptr", "const_data_ptr"}:
            self._marks.tag("data-pointer")
        if name in _WRITERS:
            self._marks.tag("file-write")
        if name in NATIVE_MEMORY and any(isinstance(value, Built) for value in self._meaning.of(base, place.scope)):
            self._marks.refuse("foreign-library")

    def _operator(self, node: ast.AST, place: Place) -> Iterable[tuple[ast.AST, Place]]:
        if isinstance(node, ast.expr):
            text = self._meaning.text(node, place.scope) if isinstance(node, ast.BinOp | ast.JoinedStr) else None
            if text is not None:
                self._text(text, place)
                place = place._replace(code=False)
        if isinstance(node, ast.AugAssign):
            self._stores.check(node, place.scope, place.running)
        if place.running and not place.kernel:
            match node:
                case ast.BinOp(op=ast.MatMult()) | ast.AugAssign(op=ast.MatMult()):
                    self._marks.operation("heavy", "@")
                case ast.AugAssign(target=target, value=value):
                    self._arithmetic([target, value], place)
                case ast.BinOp(left=left, right=right):
                    self._arithmetic([left, right], place)
                case ast.UnaryOp(op=ast.USub() | ast.Invert(), operand=operand):
                    self._arithmetic([operand], place)
                case ast.Compare(left=left, comparators=others, ops=kinds):
                    if not any(isinstance(kind, ast.Is | ast.IsNot | ast.In | ast.NotIn) for kind in kinds):
                        self._arithmetic([left, *others], place)
        return [(child, place) for child in ast.iter_child_nodes(node)]

    def _arithmetic(self, operands: list[ast.expr], place: Place) -> None:
        if any(self._meaning.is_tensor(operand, place.scope) for operand in operands):
            self._marks.operation("light", "operators on tensors")

    def _text(self, text: str, place: Place) -> None:
        if place.code and text:
            self.texts[text] = None

    def _is_unread(self, name: str) -> bool:
        return name not in self._reach.read and not self._reach.reads_documentation
