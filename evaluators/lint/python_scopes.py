"""Which values a kernel file assigns to which names, and which of its functions only prepare the model.

The order of statements and their branches are disregarded: a name means everything that the file assigns to it.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from kbevolve.evaluators.lint.tables import words

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

#: Meanings that need no expression: a tensor, and an object or class of the file itself.
TENSOR, OWN = "torch.Tensor()", "own()"
#: Methods that run when an object is made, not when it is called.
CONSTRUCTORS = words("__init__ __new__ __post_init__ __init_subclass__ __set_name__ __del__ __setstate__")
#: Methods that put an object into a container, whose name then means the object as well.
_ADDING = words("append add insert extend setdefault appendleft")


@dataclass(slots=True, eq=False)
class NameScope:
    """One namespace of the file: the module, a class or a function. A comprehension shares the one around it."""

    node: ast.AST
    outer: "NameScope | None"
    #: Name -> what it is assigned, each with the scope to read it in.
    bound: dict[str, list["Binding"]] = field(default_factory=lambda: defaultdict(list))
    #: Names that a `global` or `nonlocal` statement declares.
    shared: set[str] = field(default_factory=set)

    def owner_of(self, name: str) -> "NameScope | None":
        """The scope whose `name` is meant here, None when the file binds no such name."""
        scope: NameScope | None = self
        while scope is not None:
            passed_over = scope is not self and isinstance(scope.node, ast.ClassDef)
            if name in scope.bound and name not in scope.shared and not passed_over:
                return scope
            scope = scope.outer
        return None


#: A value, or the dotted name of one, and the scope to read it in.
Binding = tuple[ast.AST | str, NameScope]


class PythonScopes:
    """All scopes of a parsed file."""

    def __init__(self, tree: ast.Module) -> None:
        self.module = NameScope(tree, None)
        #: Scope of each function, lambda and class.
        self.by_node: dict[ast.AST, NameScope] = {}
        #: Attribute -> what the file assigns to it, on any object; methods and class variables as well.
        self.attributes: dict[str, list[Binding]] = defaultdict(list)
        #: What each function and lambda returns.
        self.returned: dict[ast.AST, list[ast.expr]] = defaultdict(list)
        #: Base classes of all classes of the file.
        self.bases: list[tuple[ast.expr, NameScope]] = []
        #: Names that may get a value in a way that `bound` does not show.
        self.uncertain: set[str] = set()
        #: Modules imported with a star.
        self.stars: list[str] = []
        self._calls: dict[str, list[tuple[ast.Call, NameScope]]] = defaultdict(list)
        #: What the file puts into containers.
        self._added: list[tuple[ast.expr, Binding]] = []
        stack: list[tuple[ast.AST, NameScope]] = [(node, self.module) for node in reversed(tree.body)]
        while stack:
            stack.extend(self._enter(*stack.pop()))
        for node, scope in self.by_node.items():
            if isinstance(node, Function):
                self._bind_parameters(node, scope)
        for container, binding in self._added:
            match container:
                case ast.Name(id=name) if owner := binding[1].owner_of(name):
                    owner.bound[name].append(binding)
                case ast.Attribute(attr=name):
                    self.attributes[name].append(binding)

    def _enter(self, node: ast.AST, scope: NameScope) -> Iterator[tuple[ast.AST, NameScope]]:
        """Record what a node binds; its children with the scope that each is read in."""
        inside: list[ast.AST] = []
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self._bind_name(node.name, node, scope)
                self.bases += [(base, scope) for base in getattr(node, "bases", [])]
                inside += node.body
            case ast.Lambda(body=result):
                inside.append(result)
                self.returned[node].append(result)
            case ast.Return(value=ast.expr() as value):
                self.returned[scope.node].append(value)
            case ast.Import(names=names):
                for alias in names:
                    top = alias.name.partition(".")[0]
                    self._bind_name(alias.asname or top, alias.name if alias.asname else top, scope)
            case ast.ImportFrom(names=names):
                module = "." * node.level + (node.module or "")
                self.stars += [module for alias in names if alias.name == "*"]
                for alias in names:
                    self._bind_name(alias.asname or alias.name, f"{module}.{alias.name}", scope)
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                scope.shared.update(names)
                self.uncertain.update(names)
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                self.uncertain.add(name)
            case ast.AugAssign(target=ast.Name(id=name) as target, value=value):
                self.uncertain.add(name)
                self._bind(target, value, scope)
            case ast.arg(arg=name):
                self.uncertain.add(name)
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name) as function, args=[*_, last]):
                self._calls[name].append((node, scope))
                if isinstance(function, ast.Attribute) and name in _ADDING:
                    self._added.append((function.value, (last, scope)))
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._bind(target, value, scope)
            case (
                ast.AnnAssign(target=target, value=ast.expr() as value)
                | ast.AugAssign(target=target, value=value)
                | ast.NamedExpr(target=target, value=value)
                | ast.For(target=target, iter=value)
                | ast.comprehension(target=target, iter=value)
                | ast.withitem(optional_vars=ast.expr() as target, context_expr=value)
            ):
                self._bind(target, value, scope)
        if inside:
            self.by_node[node] = NameScope(node, scope)
        within = set(inside)
        for child in ast.iter_child_nodes(node):
            yield child, self.by_node[node] if child in within else scope

    def _bind(self, target: ast.expr, value: ast.expr, scope: NameScope) -> None:
        """The name of a container means its members, so that each part of a target gets all of the value."""
        match target:
            case ast.Name(id=name):
                self._bind_name(name, value, scope)
            case ast.Attribute(attr=name):
                self.attributes[name].append((value, scope))
            # A tuple is a record: which of its parts is taken out later is unknown.
            case ast.Subscript(value=container) if not isinstance(value, ast.Tuple):
                self._added.append((container, (value, scope)))
            case ast.Starred(value=part):
                self._bind(part, value, scope)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                values = value.elts if isinstance(value, ast.Tuple | ast.List) else []
                for part, own in zip(parts, values if len(values) == len(parts) else [value] * len(parts), strict=True):
                    self._bind(part, own, scope)

    def _bind_name(self, name: str, value: ast.AST | str, scope: NameScope) -> None:
        owner = self.module if name in scope.shared else scope
        owner.bound[name].append((value, scope))
        if isinstance(owner.node, ast.ClassDef):
            self.attributes[name].append((value, scope))

    def _bind_parameters(self, function: Function, scope: NameScope) -> None:
        """A parameter means what its annotation says, for a tensor in `forward`, else for what calls pass."""
        arguments = function.args
        positional = [*arguments.posonlyargs, *arguments.args]
        defaults = dict(zip(reversed(positional), reversed(arguments.defaults), strict=False))
        static = any(getattr(node, "id", "") == "staticmethod" for node in getattr(function, "decorator_list", []))
        method = not static and scope.outer is not None and isinstance(scope.outer.node, ast.ClassDef)
        name = getattr(function, "name", "")
        others = [*arguments.kwonlyargs, *filter(None, [arguments.vararg, arguments.kwarg])]
        for index, argument in enumerate([*positional, *others]):
            bound = scope.bound[argument.arg]
            if method and index == 0:
                bound.append((OWN, scope))
            elif argument.annotation is not None and any(
                "Tensor" in str(getattr(node, part, ""))
                for node in ast.walk(argument.annotation)
                for part in ("id", "attr", "value")
            ):
                bound.append((TENSOR, scope))
            elif name != "forward":
                calls = self._calls.get(name, [])[:8]
                bound += [(call.args[index - method], at) for call, at in calls if index - method < len(call.args)]
            elif argument.annotation is None and getattr(defaults.get(argument), "value", None) is None:
                bound.append((TENSOR, scope))


def preparing_functions(tree: ast.Module) -> frozenset[str]:
    """Names of the functions that only prepare the model: constructors, and what only they and the top level call.

    A function that is passed on or kept in an attribute may run in a call of the model. So may a generator and a method
    like __add__.
    """
    defined = set(CONSTRUCTORS)
    running = {"forward"}
    #: Function -> names that it mentions. What is not called where it is mentioned counts as mentioned in `forward`.
    mentions: dict[str, set[str]] = defaultdict(set)
    called: set[ast.AST] = set()
    stack: list[tuple[ast.AST, str]] = [(tree, "")]
    while stack:
        node, owner = stack.pop()
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                owner = name
                defined.add(name)
                if name[:2] == "__" and name not in CONSTRUCTORS:
                    running.add(name)
            case ast.Lambda():
                owner = "forward"
            case ast.Yield() | ast.YieldFrom():
                running.add(owner)
            case ast.Call(func=function):
                called.add(function)
            case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name, ctx=ast.Load()):
                mentions[owner if node in called else "forward"].add(name)
            case ast.Constant(value=str() as name):
                mentions["forward"].add(name)
        stack.extend((child, owner) for child in ast.iter_child_nodes(node))
    pending = [*running]
    while pending:
        found = (mentions[pending.pop()] & defined) - running - CONSTRUCTORS
        running |= found
        pending += found
    return frozenset(defined - running) if "forward" in defined else frozenset()
