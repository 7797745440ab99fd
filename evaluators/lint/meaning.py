"""What the expressions of a kernel file stand for: aliases undone, strings put together, tensors told from numbers.

It is an abstract interpretation that disregards order and branches: a name stands for everything that the file
assigns to it anywhere, so that hiding an operation takes more than another name. What it cannot tell is ().
"""

import ast
from collections import Counter
from collections.abc import Iterable, Sequence

from kbevolve.evaluators.lint import texts
from kbevolve.evaluators.lint.known_names import (
    BUILDERS,
    BUILTINS,
    CHILDREN,
    COLLECTIONS,
    GROUP_METHODS,
    LIBRARY_LOADERS,
    NN_CONTAINERS,
    TRANSPARENT,
    canonical,
    is_own_operator,
)
from kbevolve.evaluators.lint.operations import gives_tensor
from kbevolve.evaluators.lint.scopes import Binding, Element, Imported, Member, Parameter, Scope, Scopes
from kbevolve.evaluators.lint.syntax import annotated_as_tensor, chain, code_of, decorators, has_plain_default, returned
from kbevolve.evaluators.lint.values import (
    Built,
    Group,
    Instance,
    Local,
    Named,
    Own,
    Tensor,
    Text,
    Value,
    elements,
    group,
    of_instance,
)

#: Steps from a name to what it stands for; honest code needs about ten.
_DEEPEST = 40
#: Steps in all: a file of 400 lines takes some thousands; a file made to explode is then read no further.
_MOST_STEPS = 150_000
#: Times that a question in a circle of assignments is asked again.
_MOST_CIRCLES = 2
#: Things that one expression may stand for; the first are kept.
_MOST_VALUES = 12


class Meaning:
    """Answers what an expression stands for; the answers are remembered."""

    def __init__(self, scopes: Scopes) -> None:
        self._scopes = scopes
        self._known: dict[ast.AST, tuple[Value, ...]] = {}
        #: What is being asked now, with its depth.
        self._asking: dict[ast.AST, int] = {}
        #: Depth of the shallowest question that the answer in the making would need but is part of.
        self._waits_for = _DEEPEST
        #: How often the answer to a question in a circle came out empty.
        self._empty: Counter[ast.AST] = Counter()
        self._steps = 0
        #: Modules and arguments that are read by a computed name which is not known.
        self.unknown_names: list[tuple[Value, ...]] = []

    def of(self, node: ast.expr, scope: Scope) -> tuple[Value, ...]:
        """Everything that the expression may stand for, () when that cannot be told."""
        known = self._known.get(node)
        if known is not None:
            return known
        depth = len(self._asking)
        if node in self._asking or depth >= _DEEPEST or self._steps > _MOST_STEPS:
            self._waits_for = min(self._waits_for, self._asking.get(node, 0))
            return ()
        self._steps += 1
        self._asking[node] = depth
        outside, self._waits_for = self._waits_for, _DEEPEST
        try:
            values = tuple(dict.fromkeys(self._find(node, scope)))[:_MOST_VALUES]
        finally:
            del self._asking[node]
        # An empty answer found on the way round a circle may only lack its own beginning; after some it is believed.
        whole = self._waits_for >= depth
        self._empty[node] += not whole
        if values or whole or self._empty[node] > _MOST_CIRCLES:
            self._known[node] = values
        self._waits_for = min(outside, _DEEPEST if whole else self._waits_for)
        return values

    def names(self, node: ast.expr, scope: Scope) -> list[str]:
        """The dotted names among the expression's meanings."""
        return [value.name for value in self.of(node, scope) if isinstance(value, Named)]

    def text(self, node: ast.expr, scope: Scope) -> str | None:
        """The constant string that the expression is, if it is one."""
        return next((value.text for value in self.of(node, scope) if isinstance(value, Text)), None)

    def is_tensor(self, node: ast.expr, scope: Scope) -> bool:
        """Whether the expression may be a tensor, for all we know."""
        return any(isinstance(value, Tensor) for value in self.of(node, scope))

    # Expressions

    def _find(self, node: ast.expr, scope: Scope) -> Iterable[Value]:
        match node:
            case ast.Constant(value=str() as text):
                return [Text(text)]
            case ast.Constant(value=bytes() as data):
                return [Text(data.decode("latin-1"))]
            case ast.Name(id=name):
                return self._name(name, scope)
            case ast.Attribute(value=base, attr=name):
                return [found for value in self.of(base, scope) for found in self.attribute(value, name)]
            case ast.Call():
                return self._call(node, scope)
            case ast.BinOp():
                return self._operator(node, scope)
            case ast.JoinedStr(values=parts):
                return [Text("".join(self._part(part, scope) for part in parts)[: texts.MOST])]
            case ast.Subscript(value=base, slice=where):
                return [found for value in self.of(base, scope) for found in self._item(value, where, scope)]
            case ast.IfExp(body=first, orelse=second):
                return self._all([first, second], scope)
            case ast.BoolOp(values=members):
                return self._all(members, scope)
            case ast.UnaryOp(operand=value) if not isinstance(node.op, ast.Not):
                return [Tensor()] if self.is_tensor(value, scope) else []
            case ast.Compare(left=left, comparators=others):
                return [Tensor()] if any(self.is_tensor(value, scope) for value in [left, *others]) else []
            case ast.NamedExpr(value=value) | ast.Starred(value=value) | ast.Await(value=value):
                return self.of(value, scope)
            case ast.Tuple(elts=members) | ast.List(elts=members) | ast.Set(elts=members) | ast.Dict(values=members):
                return [group(self._all(members, scope))]
            case ast.ListComp(elt=member) | ast.SetComp(elt=member) | ast.GeneratorExp(elt=member):
                return [group(self.of(member, self._scopes.by_node[node]))]
            case ast.DictComp(value=member):
                return [group(self.of(member, self._scopes.by_node[node]))]
            case ast.Lambda():
                return [Local(node)]
        return []

    def _all(self, nodes: Sequence[ast.expr], scope: Scope) -> list[Value]:
        return [value for node in nodes[:128] for value in self.of(node, scope)]

    def _name(self, name: str, scope: Scope) -> Iterable[Value]:
        owner = scope.owner_of(name)
        if owner is not None:
            return [value for binding in owner.bindings[name][:16] for value in self._binding(binding, owner)]
        if name in BUILTINS:
            return [Named("builtins" if name == "__builtins__" else f"builtins.{name}")]
        return [Named(canonical(f"{module}.{name}")) for module in self._scopes.stars]

    def _binding(self, binding: Binding, scope: Scope) -> Iterable[Value]:
        match binding:
            case Imported(name):
                return [Named(canonical(name))]
            case Parameter():
                return self._parameter(binding, scope)
            case Element(of=container):
                return [found for value in self.of(container, scope) for found in elements(value)]
            case Member(value=value):
                return [group(self.of(value, scope))]
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return [Local(binding)]
        return self.of(binding, scope)

    def _parameter(self, parameter: Parameter, scope: Scope) -> Iterable[Value]:
        function, index = parameter.function, parameter.index
        tensor = [Tensor()] if index >= 0 else [group([Tensor()])]
        annotated = annotated_as_tensor(parameter.argument)
        if annotated:
            return tensor
        outer = scope.outer
        owner = outer.node if outer is not None and isinstance(outer.node, ast.ClassDef) else None
        static = any(isinstance(node, ast.Name) and node.id == "staticmethod" for node in decorators(function))
        if owner is not None and index == 0 and not static:
            return [Own(owner)]
        if annotated is False or isinstance(function, ast.Lambda):
            return []
        if owner is not None and function.name == "forward" and not has_plain_default(function, index):
            return tensor
        offset = 0 if owner is None or static else 1
        found: list[Value] = []
        for call, place in self._scopes.calls.get(function.name, ())[:8]:
            if index == -1:
                found.append(group(self._all(call.args, place)))
            elif 0 <= index - offset < len(call.args):
                found.extend(self.of(call.args[index - offset], place))
            found.extend(
                value
                for keyword in call.keywords
                if keyword.arg == parameter.argument.arg
                for value in self.of(keyword.value, place)
            )
        return found

    # Members

    def attribute(self, value: Value, name: str) -> Iterable[Value]:
        """What ``value.name`` stands for."""
        match value:
            case Named(base):
                return [Named(canonical(f"{base}.{name}"))]
            case Tensor():
                same = name in {"T", "mT", "H", "mH", "data", "grad", "real", "imag"}
                return [value if same else Named(f"torch.Tensor.{name}")]
            case Instance(of):
                return of_instance(of, name)
            case Built():
                return [value]
            case Own(node, parent):
                return self._of_own(node, name, parent)
            case Local(node=ast.ClassDef() as node):
                return self._of_own(node, name, False)
            case Group():
                return [value] if name in GROUP_METHODS else []
        return []

    def _of_own(self, node: ast.ClassDef, name: str, parent: bool) -> Iterable[Value]:
        found: list[Value] = []
        inner = self._scopes.by_node[node]
        if not parent:
            if name in CHILDREN:
                return [group(self._children())]
            if name in {"parameters", "buffers"}:
                return [group([Tensor()])]
            found += [
                value for given, place in self._scopes.attributes.get(name, ())[:16] for value in self.of(given, place)
            ]
            found += [value for binding in inner.bindings.get(name, ())[:4] for value in self._binding(binding, inner)]
        if not found and len(self._asking) < _DEEPEST:
            for base in node.bases:
                for value in self.of(base, inner.outer or inner):
                    if isinstance(value, Named) and value.name != "torch.Tensor":
                        found += of_instance(value.name, name)
                    else:
                        found += self.attribute(value, name)
        return found

    def _children(self) -> list[Value]:
        """Every object that the file keeps in an attribute."""
        kept = [
            value
            for values in self._scopes.attributes.values()
            for given, place in values[:4]
            for value in self.of(given, place)
        ]
        return [value for value in kept if isinstance(value, Instance | Group)]

    def _item(self, value: Value, where: ast.expr, scope: Scope) -> Iterable[Value]:
        match value:
            case Text(text):
                part = texts.sliced(text, where)
                return [] if part is None else [Text(part)]
            case Group():
                return [value] if isinstance(where, ast.Slice) else elements(value)
            case Tensor() | Built():
                return [value]
            case Named(base):
                key = self.text(where, scope)
                if key is None:
                    return []
                if base == "sys.modules":
                    return [Named(canonical(key))]
                if base in {"builtins.globals()", "builtins.locals()"}:
                    return self._name(key, self._scopes.module)
                return [Named(canonical(f"{base.removesuffix('.__dict__')}.{key}"))]
        return []

    # Calls

    def _call(self, node: ast.Call, scope: Scope) -> Iterable[Value]:
        found: list[Value] = []
        for function in self.of(node.func, scope):
            match function:
                case Named(name):
                    found.extend(self._call_named(name, node, scope))
                case Instance() | Own():
                    found.append(Tensor())
                case Group(members):
                    method = getattr(node.func, "attr", "")
                    if method in {"get", "pop", "get_submodule"}:
                        found.extend(members)
                    else:
                        found.append(function if method in CHILDREN | GROUP_METHODS else Tensor())
                case Local(node=ast.ClassDef() as made):
                    found.append(Own(made))
                case Local(node=ast.Lambda() as made):
                    found.extend(self.of(made.body, self._scopes.by_node.get(made, scope)))
                case Local(node=ast.FunctionDef() | ast.AsyncFunctionDef() as made):
                    inner = self._scopes.by_node[made]
                    for value in returned(made):
                        found.extend(self.of(value, inner))
        if isinstance(node.func, ast.Attribute):
            found.extend(self._method(node, node.func, scope))
        return found

    def _method(self, node: ast.Call, function: ast.Attribute, scope: Scope) -> Iterable[Value]:
        """Methods of strings, and of tensors through `attribute`."""
        for value in self.of(function.value, scope):
            if isinstance(value, Text):
                if function.attr == "join" and node.args:
                    parts = [part for whole in self.of(node.args[0], scope) for part in elements(whole)]
                    whole = value.text.join(part.text for part in parts if isinstance(part, Text))
                    yield Text(whole[: texts.MOST])
                else:
                    arguments = [self.text(argument, scope) for argument in node.args]
                    result = texts.method(value.text, function.attr, arguments)
                    if result is not None:
                        yield Text(result)

    def _call_named(self, name: str, node: ast.Call, scope: Scope) -> Iterable[Value]:
        arguments = node.args
        match name, arguments:
            case "builtins.getattr" | "operator.getattr" | "inspect.getattr_static", [base, key, *default]:
                attribute = self.text(key, scope)
                values = self.of(base, scope)
                if attribute is None:
                    self.unknown_names.append(values)
                    return self._all(default, scope)
                return [
                    *(found for value in values for found in self.attribute(value, attribute)),
                    *self._all(default, scope),
                ]
            case "builtins.__import__" | "importlib.import_module" | "importlib.__import__", [key, *_]:
                module = self.text(key, scope)
                if module is None:
                    return [Built()]
                return [Named(canonical(module.partition(".")[0] if "__import__" in name else module))]
            case "builtins.globals" | "builtins.locals", _:
                return [Named(f"{name}()")]
            case "builtins.vars", [base, *_]:
                return [Named(f"{found}.__dict__") for found in self.names(base, scope)]
            case "builtins.super", _:
                enclosing = scope.enclosing_class
                return [] if enclosing is None else [Own(enclosing, parent=True)]
            case "builtins.type", [base]:
                return [Local(value.node) for value in self.of(base, scope) if isinstance(value, Own)]
            case "builtins.chr", [ast.Constant(value=int() as code)]:
                return [Text(chr(code))] if 0 <= code < 0x110000 else []
            case "builtins.str" | "builtins.bytes" | "codecs.decode" | "codecs.encode", [base, *rest]:
                return self._decoded(base, rest, scope)
            case "builtins.map", [function, base, *_] if "builtins.chr" in self.names(function, scope):
                if isinstance(base, ast.Tuple | ast.List):
                    return [group(Text(chr(one)) for one in map(code_of, base.elts) if one is not None)]
            case "builtins.next", [base, *_]:
                return [found for value in self.of(base, scope) for found in elements(value)]
            case "torch.library.Library" | "torch.ops.load_library", _:
                return [Built()]
        if arguments and (decoded := texts.decoded(name, self.text(arguments[0], scope) or "")) is not None:
            return [Text(decoded)]
        if name in BUILDERS or name in LIBRARY_LOADERS or is_own_operator(name) or name.startswith("triton."):
            return [Built()]
        if name in TRANSPARENT:
            return self._all(arguments[:1], scope)
        if name in COLLECTIONS or name in NN_CONTAINERS or name.startswith("collections."):
            members = self._all([*arguments, *(keyword.value for keyword in node.keywords)], scope)
            return [group(part for value in members for part in (elements(value) or [value]))]
        if gives_tensor(name):
            return [Tensor()]
        if name.startswith("torch.nn.") and name.rpartition(".")[2][:1].isupper():
            return [Instance(name)]
        return []

    def _decoded(self, base: ast.expr, rest: Sequence[ast.expr], scope: Scope) -> list[Value]:
        if isinstance(base, ast.Tuple | ast.List):
            codes = [code_of(element) for element in base.elts]
            return [Text("".join(chr(code) for code in codes if code is not None))]
        arguments = [self.text(argument, scope) for argument in rest]
        return [
            Text(texts.method(text, "decode", arguments) or "") for text in [self.text(base, scope)] if text is not None
        ]

    # Operators

    def _operator(self, node: ast.BinOp, scope: Scope) -> Iterable[Value]:
        match node.op:
            case ast.Add():
                parts = [self.text(part, scope) for part in chain(node)]
                if any(part is not None for part in parts):
                    return [Text("".join(" " if part is None else part for part in parts)[: texts.MOST])]
            case ast.Mod() | ast.Mult():
                text = self.text(node.left, scope)
                if text is not None:
                    given = node.right.elts if isinstance(node.right, ast.Tuple) else [node.right]
                    return [Text(texts.percent(text, [self.text(one, scope) for one in given]))]
        sides = self._all([node.left, node.right], scope)
        if any(isinstance(value, Tensor) for value in sides):
            return [Tensor()]
        return [group(sides)] if any(isinstance(value, Group) for value in sides) else []

    def _part(self, part: ast.expr, scope: Scope) -> str:
        """A piece of an f-string; a blank where it is not known."""
        value = part.value if isinstance(part, ast.FormattedValue) else part
        text = self.text(value, scope)
        if text is None and isinstance(value, ast.Constant):
            text = str(value.value)
        return " " if text is None else text
