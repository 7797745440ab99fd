"""The rules on what a kernel's Python changes: other modules' names, settings, state that outlives a call."""

import ast
import re

from kbevolve.evaluators.lint.meaning import Meaning
from kbevolve.evaluators.lint.rules import PROTECTED, SETTINGS, is_loader_variable
from kbevolve.evaluators.lint.scopes import Scope
from kbevolve.evaluators.lint.syntax import decorators
from kbevolve.evaluators.lint.tags import Marks
from kbevolve.evaluators.lint.values import Built, Instance, Local, Named, Own, Tensor
from kbevolve.evaluators.lint.words import words

#: Methods that change a container.
_CHANGES = words(
    """
    append add update setdefault extend insert pop popitem clear remove discard move_to_end __setitem__
    __delitem__ appendleft popleft
"""
)
_LOWERED = re.compile(r"tf32|fp16|bf16|fp32_precision|reduced_precision|half")
#: What may be assigned to a tensor without making it another kind of thing.
_TENSOR_STATE = words("data grad requires_grad names")


class Stores:
    """Tells `marks` what assignments and changing calls mean."""

    def __init__(self, meaning: Meaning, marks: Marks) -> None:
        self._meaning = meaning
        self._marks = marks

    def check(self, node: ast.AST, scope: Scope, running: bool) -> None:
        """A statement or expression that may store something."""
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._target(target, value, scope, running)
            case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.AugAssign(target=target, value=value):
                self._target(target, value, scope, running)
            case ast.Delete(targets=targets):
                for target in targets:
                    self._target(target, None, scope, running)
            case ast.For(target=target) | ast.withitem(optional_vars=ast.expr() as target):
                self._target(target, None, scope, running)

    def check_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope, running: bool) -> None:
        """A function that may run in a call: caches of tensors, defaults that keep what they are given."""
        if not running:
            return
        defaults = [*node.args.defaults, *(default for default in node.args.kw_defaults if default is not None)]
        if any(
            isinstance(default, ast.Dict | ast.List | ast.Set | ast.DictComp | ast.ListComp) for default in defaults
        ):
            self._marks.tag("module-cache")
        outer = scope.outer or scope
        for decorator in decorators(node):
            made = decorator.func if isinstance(decorator, ast.Call) else decorator
            if {"functools.cache", "functools.lru_cache"} & set(self._meaning.names(made, outer)):
                names = [argument.arg for argument in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]]
                if any(self._meaning.is_tensor(ast.Name(name, ast.Load()), scope) for name in names):
                    self._marks.tag("module-cache")

    def check_name(self, name: str) -> None:
        """Changing methods of other modules' objects, by their dotted names."""
        base, _, last = name.rpartition(".")
        if base == "os.environ" and last in _CHANGES:
            self._marks.tag("flags")
        elif last in {"__setattr__", "__delattr__"} and base.partition(".")[0] in PROTECTED:
            if not base.startswith(("builtins.", "torch.Tensor")):
                self._marks.refuse("patches-torch")
        elif base.endswith("__dict__") and last in _CHANGES and base.partition(".")[0] in PROTECTED:
            self._marks.refuse("patches-torch")

    def check_call(self, node: ast.Call, scope: Scope, running: bool) -> None:
        """`setattr` and its kin; changing methods of containers that outlive the call."""
        names = self._meaning.names(node.func, scope)
        if node.args and {
            "builtins.setattr",
            "builtins.delattr",
            "builtins.object.__setattr__",
            "builtins.type.__setattr__",
        } & set(names):
            key = self._meaning.text(node.args[1], scope) if len(node.args) > 1 else None
            value = node.args[2] if len(node.args) > 2 else None
            self._attribute(node.args[0], key or "", value, scope, running)
        if isinstance(node.func, ast.Attribute) and running:
            base = node.func.value
            held = self._meaning.of(base, scope)
            other = any(isinstance(value, Named | Built | Instance | Tensor) for value in held)
            if node.func.attr in _CHANGES and not other and self._outlives(base, scope):
                self._marks.tag("module-cache")
            looks_up = node.func.attr in {"get", "setdefault", "pop"} and bool(node.args)
            if looks_up and self._is_address(node.args[0]):
                self._marks.tag("module-cache")

    def _target(self, target: ast.expr, value: ast.expr | None, scope: Scope, running: bool) -> None:
        pending = [target]
        while pending:
            match pending.pop():
                case ast.Tuple(elts=parts) | ast.List(elts=parts):
                    pending.extend(parts)
                case ast.Starred(value=part):
                    pending.append(part)
                case ast.Name(id=name):
                    if name in scope.shared and running:
                        self._marks.tag("module-cache")
                case ast.Attribute(value=base, attr=name):
                    self._attribute(base, name, value, scope, running)
                case ast.Subscript(value=base, slice=key):
                    self._item(base, key, scope, running)

    def _attribute(self, base: ast.expr, name: str, value: ast.expr | None, scope: Scope, running: bool) -> None:
        if name == "__class__":
            self._marks.tag("tensor-subclass")
        for owner in self._meaning.of(base, scope):
            match owner:
                case Named(dotted):
                    self._foreign(f"{dotted}.{name}", value, scope)
                case Tensor():
                    if name not in _TENSOR_STATE:
                        self._marks.tag("tensor-subclass")
                case Own() | Local():
                    if name in {"__code__", "__globals__", "__closure__"}:
                        self._marks.tag("patches-torch")
                    elif running:
                        self._marks.tag("module-cache")

    def _foreign(self, name: str, value: ast.expr | None, scope: Scope) -> None:
        if name.startswith("torch.Tensor.") and name.count(".") > 2:
            self._marks.tag("tensor-subclass")
        elif SETTINGS.match(name):
            self._marks.tag("flags")
            off = isinstance(value, ast.Constant) and value.value in (False, "ieee", "highest")
            if _LOWERED.search(name) and not off and not self._is_put_back(name, value, scope):
                self._marks.tag("half-types")
        elif name.partition(".")[0] in PROTECTED:
            self._marks.refuse("patches-torch")
        else:
            self._marks.tag("patches-torch")

    def _item(self, base: ast.expr, key: ast.expr, scope: Scope, running: bool) -> None:
        held = self._meaning.of(base, scope)
        for owner in held:
            if isinstance(owner, Named):
                self._foreign_item(owner.name, self._meaning.text(key, scope))
        if not running:
            return
        kept = self._outlives(base, scope) and not any(isinstance(value, Named) for value in held)
        if kept or self._is_address(key) or any(getattr(value, "name", "") == "builtins.globals()" for value in held):
            self._marks.tag("module-cache")

    def _is_put_back(self, name: str, value: ast.expr | None, scope: Scope) -> bool:
        """Whether the value is a variable that never held anything but this setting."""
        owner = scope.owner_of(value.id) if isinstance(value, ast.Name) else None
        if not isinstance(value, ast.Name) or owner is None:
            return False
        match owner.bindings[value.id]:
            case [ast.Attribute() as read]:
                return self._meaning.names(read, owner) == [name]
        return False

    def _foreign_item(self, name: str, key: str | None) -> None:
        if name == "os.environ":
            self._marks.tag("flags")
            if key is not None and is_loader_variable(key):
                self._marks.refuse("patches-torch")
        elif name == "sys.modules":
            if key is not None and key.partition(".")[0] in PROTECTED:
                self._marks.refuse("patches-torch")
        elif name == "builtins" or (name.endswith("__dict__") and name.partition(".")[0] in PROTECTED):
            self._marks.refuse("patches-torch")

    def _outlives(self, base: ast.expr, scope: Scope) -> bool:
        """Whether an object is the module's or the model's, not one call's."""
        match base:
            case ast.Name(id=name):
                owner = scope.owner_of(name)
                return owner is not None and isinstance(owner.node, ast.Module)
            case ast.Attribute(value=inner):
                return any(isinstance(value, Own | Local) for value in self._meaning.of(inner, scope))
            case ast.Subscript(value=inner):
                return self._outlives(inner, scope)
        return False

    @staticmethod
    def _is_address(key: ast.expr) -> bool:
        """Whether a key contains where a tensor lies, or which object it is."""
        for node in ast.walk(key):
            match node:
                case ast.Call(func=ast.Attribute(attr="data_ptr")) | ast.Call(func=ast.Name(id="id")):
                    return True
                case ast.Attribute(attr="_version"):
                    return True
        return False
