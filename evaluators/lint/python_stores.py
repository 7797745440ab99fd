"""The rules on what a kernel's Python changes: other modules' names, settings, state that outlives a call."""

import ast
import re

from kbevolve.evaluators.lint.marks import Marks
from kbevolve.evaluators.lint.python_names import BUILT, PythonNames
from kbevolve.evaluators.lint.python_scopes import OWN, NameScope
from kbevolve.evaluators.lint.python_unreadable import CODE_OBJECTS
from kbevolve.evaluators.lint.tables import PATTERNS, PROTECTED, table, words

#: Methods that change a container.
_CHANGES = words("append add update setdefault extend insert pop popitem clear remove discard move_to_end appendleft")
#: How many processes compile is no setting of a kernel: every file of torch.compile has it.
_COMPILERS = "torch._inductor.config.compile_threads"
_LOADER_VARIABLES = table("loader_variables")
_LOWERED = re.compile(r"tf32|fp16|bf16|fp32_precision|reduced_precision|half")
_SETS_ATTRIBUTE = re.compile(r"builtins\.(setattr|delattr|(object|type)\.__setattr__)")
#: What may be assigned to a tensor without making it another kind of thing.
_TENSOR_STATE = words("data grad requires_grad names")


class PythonStores:
    """Adds to `marks` what assignments and changing calls mean."""

    def __init__(self, names: PythonNames, marks: Marks) -> None:
        self._names = names
        self._marks = marks
        #: Targets of assignments with one value each.
        self._values: dict[ast.AST, ast.expr] = {}

    def check(self, node: ast.AST, scope: NameScope, running: bool) -> None:
        """A statement that assigns, before its targets; or a target."""
        match node:
            case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value) | ast.AugAssign(value=value):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                self._values |= dict.fromkeys(targets, value)
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) if name in scope.shared and running:
                self._marks.tag("module-cache")
            case ast.Attribute(value=base, attr=name, ctx=ast.Store() | ast.Del()):
                self._attribute(base, name, self._values.get(node), scope, running)
            case ast.Subscript(value=base, slice=key, ctx=ast.Store() | ast.Del()):
                self._item(base, key, scope, running)

    def check_call(self, node: ast.Call, scope: NameScope, running: bool) -> None:
        """`setattr` and similar functions; changing methods of containers that outlive the call."""
        function, arguments = node.func, node.args
        if len(arguments) > 1 and any(map(_SETS_ATTRIBUTE.fullmatch, self._names.names(function, scope))):
            key = self._names.text(arguments[1], scope)
            self._attribute(arguments[0], key or "", arguments[2] if len(arguments) > 2 else None, scope, running)
        if running and isinstance(function, ast.Attribute) and function.attr in _CHANGES:
            names = set(self._names.names(function.value, scope))
            container = names <= {"own()", "torch.Tensor()"} and not (function.attr == "add" and names)
            if container and self._outlives(function.value, scope):
                self._marks.tag("module-cache")

    def _attribute(self, base: ast.expr, name: str, value: ast.expr | None, scope: NameScope, running: bool) -> None:
        kernel = any(one == BUILT or isinstance(one, ast.FunctionDef) for one in self._names.of(base, scope))
        if name in CODE_OBJECTS or (name in {"src", "raw_src"} and kernel):  # of a Triton kernel
            self._marks.refuse("unreadable")
        if name in {"__code__", "__globals__", "__closure__"}:
            self._marks.tag("patches-torch")
        elif running and self._is_own(base, scope):
            self._marks.tag("module-cache")
        for owner in self._names.names(base, scope):
            if name == "__class__" or (owner == "torch.Tensor()" and name not in _TENSOR_STATE):
                self._marks.tag("tensor-subclass")
            elif not owner.endswith("()"):
                self._foreign(f"{owner}.{name}", value, scope)

    def _foreign(self, name: str, value: ast.expr | None, scope: NameScope) -> None:
        """A name of another module is assigned."""
        if name == _COMPILERS:
            return
        if PATTERNS["settings"].match(name):
            self._marks.tag("flags")
            off = isinstance(value, ast.Constant) and value.value in (False, "ieee", "highest")
            # A setting that is put back was read into a variable.
            put_back = value is not None and name in self._names.names(value, scope)
            if _LOWERED.search(name) and not off and not put_back:
                self._marks.tag("half-types")
        elif name.startswith("torch.Tensor.") and name.count(".") > 2:
            self._marks.tag("tensor-subclass")
        elif name.partition(".")[0] in PROTECTED:
            self._marks.refuse("patches-torch")
        else:
            self._marks.tag("patches-torch")

    def _item(self, base: ast.expr, key: ast.expr, scope: NameScope, running: bool) -> None:
        names = self._names.names(base, scope)
        text = self._names.text(key, scope) or ""
        for name in names:
            root = (text if name == "sys.modules" else name).partition(".")[0]
            if name == "os.environ":
                self._marks.tag("flags")
            patches = name in {"sys.modules", "builtins"} or name.endswith("__dict__")
            if (patches and root in PROTECTED) or (name == "os.environ" and text in _LOADER_VARIABLES):
                self._marks.refuse("patches-torch")
        own = all(name.endswith("()") for name in names)
        if running and ((own and self._outlives(base, scope)) or "builtins.globals()" in names):
            self._marks.tag("module-cache")

    def _is_own(self, base: ast.expr, scope: NameScope) -> bool:
        """Whether this is an object, class or function of the file."""
        return any(meaning == OWN or isinstance(meaning, ast.AST) for meaning in self._names.of(base, scope))

    def _outlives(self, base: ast.expr, scope: NameScope) -> bool:
        """Whether a container is the module's or the model's, not one call's."""
        while isinstance(base, ast.Subscript):
            base = base.value
        if isinstance(base, ast.Attribute):
            return self._is_own(base.value, scope)
        owner = scope.owner_of(base.id) if isinstance(base, ast.Name) else None
        return owner is not None and isinstance(owner.node, ast.Module)
