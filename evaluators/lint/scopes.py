"""Who binds which name in a kernel file: scopes, imports, assignments, attributes, calls. Order is disregarded."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True, slots=True)
class Imported:
    """A name bound by an import."""

    name: str


@dataclass(frozen=True, slots=True)
class Parameter:
    """A name bound by a call of its function."""

    function: Function
    #: Position among the positional parameters, -1 for ``*args`` and ``**kwargs``.
    index: int
    argument: ast.arg


@dataclass(frozen=True, slots=True)
class Element:
    """A name bound to a member of a container: a loop variable, a part of an unpacked tuple."""

    of: ast.expr


@dataclass(frozen=True, slots=True)
class Member:
    """A container's name, to which this value was added: ``name[key] = value``."""

    value: ast.expr


#: An expression binds its own value; a definition binds itself.
Binding = Imported | Parameter | Element | Member | ast.expr | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(slots=True, eq=False)
class Scope:
    """One namespace of the file."""

    #: The module, class, function or comprehension.
    node: ast.AST
    outer: "Scope | None"
    bindings: dict[str, list[Binding]] = field(default_factory=lambda: defaultdict(list))
    #: Names that belong to the module (`global`) or to an outer function (`nonlocal`).
    shared: set[str] = field(default_factory=set)

    def owner_of(self, name: str) -> "Scope | None":
        """The scope whose `name` is meant here, None when the file binds no such name."""
        scope: Scope | None = self
        while scope is not None:
            passed_over = scope is not self and isinstance(scope.node, ast.ClassDef)
            if not passed_over and name in scope.bindings and name not in scope.shared:
                return scope
            scope = scope.outer
        return None

    @property
    def enclosing_class(self) -> ast.ClassDef | None:
        """The class whose method (or a function in it) this is."""
        scope: Scope | None = self
        while scope is not None:
            if isinstance(scope.node, ast.ClassDef):
                return scope.node
            scope = scope.outer
        return None


class Scopes:
    """All scopes of a parsed file, and indices over the whole of it."""

    def __init__(self, tree: ast.Module) -> None:
        self.module = Scope(tree, None)
        #: Scopes by their node (functions, lambdas, classes, comprehensions).
        self.by_node: dict[ast.AST, Scope] = {tree: self.module}
        #: Attribute name -> the values that any object's attribute of that name is given.
        self.attributes: dict[str, list[tuple[ast.expr, Scope]]] = defaultdict(list)
        #: Last name of a callee -> its calls.
        self.calls: dict[str, list[tuple[ast.Call, Scope]]] = defaultdict(list)
        #: Modules that are imported with a star.
        self.stars: list[str] = []
        stack: list[tuple[ast.AST, Scope]] = [(node, self.module) for node in reversed(tree.body)]
        #: What is put into containers, by the container's name where it happens.
        self._members: list[tuple[str, Scope, ast.expr]] = []
        while stack:
            node, scope = stack.pop()
            stack.extend(self._enter(node, scope))
        for name, scope, value in self._members:
            owner = scope.owner_of(name)
            if owner is not None:
                owner.bindings[name].append(Member(value))

    def _enter(self, node: ast.AST, scope: Scope) -> Iterable[tuple[ast.AST, Scope]]:
        """Record what a node binds; its children with the scope that each is read in."""
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                if not isinstance(node, ast.Lambda):
                    scope.bindings[node.name].append(node)
                inner = self.by_node[node] = Scope(node, scope)
                self._bind_parameters(node, inner)
                body = [node.body] if isinstance(node, ast.Lambda) else node.body
                outside = [node.args, *getattr(node, "decorator_list", [])]
                return [(child, scope) for child in outside] + [(child, inner) for child in body]
            case ast.ClassDef():
                scope.bindings[node.name].append(node)
                inner = self.by_node[node] = Scope(node, scope)
                outside = [*node.bases, *node.keywords, *node.decorator_list]
                return [(child, scope) for child in outside] + [(child, inner) for child in node.body]
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                scope = self.by_node[node] = Scope(node, scope)
            case ast.Import():
                for alias in node.names:
                    name = alias.name if alias.asname else alias.name.partition(".")[0]
                    self._owner(scope, alias.asname or name).bindings[alias.asname or name].append(Imported(name))
            case ast.ImportFrom():
                self._import_from(node, scope)
            case ast.Global() | ast.Nonlocal():
                scope.shared.update(node.names)
            case ast.Call():
                self._call(node, scope)
            case _:
                for target, value in _assignments(node):
                    self._bind(target, value, scope)
        return [(child, scope) for child in ast.iter_child_nodes(node)]

    def _import_from(self, node: ast.ImportFrom, scope: Scope) -> None:
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            if alias.name == "*":
                self.stars.append(module)
            else:
                name = alias.asname or alias.name
                self._owner(scope, name).bindings[name].append(Imported(f"{module}.{alias.name}"))

    def _bind_parameters(self, function: Function, scope: Scope) -> None:
        arguments = function.args
        for index, argument in enumerate([*arguments.posonlyargs, *arguments.args]):
            scope.bindings[argument.arg].append(Parameter(function, index, argument))
        for argument in arguments.kwonlyargs:
            scope.bindings[argument.arg].append(Parameter(function, 1 << 30, argument))
        for starred in (arguments.vararg, arguments.kwarg):
            if starred is not None:
                scope.bindings[starred.arg].append(Parameter(function, -1, starred))

    def _call(self, node: ast.Call, scope: Scope) -> None:
        match node.func:
            case ast.Name(id=name):
                self.calls[name].append((node, scope))
                if name == "setattr" and len(node.args) == 3 and isinstance(node.args[1], ast.Constant):
                    self.attributes[str(node.args[1].value)].append((node.args[2], scope))
            case ast.Attribute(attr=name):
                self.calls[name].append((node, scope))
                match (name, node.args):
                    case "register_buffer" | "register_parameter" | "add_module" | "register_module", [key, value, *_]:
                        if isinstance(key, ast.Constant):
                            self.attributes[str(key.value)].append((value, scope))

    def _bind(self, target: ast.expr, value: Binding, scope: Scope) -> None:
        pending: list[tuple[ast.expr, Binding]] = [(target, value)]
        while pending:
            target, value = pending.pop()
            match target:
                case ast.Name(id=name):
                    self._owner(scope, name).bindings[name].append(value)
                case ast.Attribute(attr=name):
                    if isinstance(value, ast.expr):
                        self.attributes[name].append((value, scope))
                case ast.Subscript(value=ast.Name(id=name)):
                    if isinstance(value, ast.expr):
                        self._members.append((name, scope, value))
                case ast.Starred(value=inner):
                    pending.append((inner, value))
                case ast.Tuple(elts=targets) | ast.List(elts=targets):
                    pairs = _unpacked(targets, value)
                    pending.extend(pairs)

    def _owner(self, scope: Scope, name: str) -> Scope:
        return self.module if name in scope.shared else scope


def _unpacked(targets: list[ast.expr], value: Binding) -> Iterator[tuple[ast.expr, Binding]]:
    """Pairs of target and value; member by member where both sides are written out with as many."""
    if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(targets):
        yield from zip(targets, value.elts, strict=True)
    elif isinstance(value, ast.expr):
        yield from ((target, Element(value)) for target in targets)
    else:
        yield from ((target, value) for target in targets)


def _assignments(node: ast.AST) -> Iterator[tuple[ast.expr, Binding]]:
    match node:
        case ast.Assign():
            yield from ((target, node.value) for target in node.targets)
        case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target=target, value=value):
            yield target, value
        case ast.AugAssign(target=ast.Name() as name):
            yield name, ast.BinOp(ast.Name(name.id, ast.Load()), node.op, node.value)
        case ast.For() | ast.AsyncFor() | ast.comprehension():
            yield node.target, Element(node.iter)
        case ast.withitem(optional_vars=ast.expr() as target):
            yield target, node.context_expr
