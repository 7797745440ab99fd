"""What the expressions of a kernel's Python mean: imports and aliases undone, attributes of the model looked up.

It follows assignments, `getattr` with a constant name, containers, functions of the file and modules of torch.nn.
docs/tags.md lists what it does not follow. The meaning of an expression that it does not understand is ().
"""

import ast
import builtins
import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from kbevolve.evaluators.lint.operations import MODULE_CLASS, gives_tensor
from kbevolve.evaluators.lint.python_rules import BUILDERS, LIBRARY_LOADER, PROTECTED
from kbevolve.evaluators.lint.python_scopes import OWN, TENSOR, DottedName, NameScope, PythonScopes
from kbevolve.evaluators.lint.words import words

#: Expressions within expressions that are followed; honest code needs about ten.
_DEEPEST = 60
#: Things that one expression may mean; the first are kept.
_MOST = 12

#: What the kernel's own builder made: an extension, a library, a function in it.
BUILT = DottedName("built()")
_NN_CONTAINER = re.compile(r"torch\.nn\.(Sequential|ModuleList|ModuleDict|ParameterList)")
_COLLECTION = re.compile(
    r"builtins\.(list|tuple|set|iter|next|reversed|sorted|enumerate|zip|dict|map|filter)|collections\.\w+"
)
#: Methods that give a container's members.
MEMBERS = words("values items get pop copy children modules")
#: Methods of containers that no tensor has: they are asked of a container of tensors.
_CONTAINER_METHODS = {name for kind in (list, dict, set, deque) for name in dir(kind) if name[0] != "_"} - {
    "add",
    "sort",
    "values",
}
#: Functions that give back what they take.
_TRANSPARENT = re.compile(
    r"functools\.(partial|wraps|cache|lru_cache)|torch\.(compile|no_grad|inference_mode|vmap)|torch\.jit\.(script|trace|ignore)"
    r"|torch\.func\.(vmap|functional_call)|torch\.(_dynamo|compiler)\.disable|torch\.cuda\.make_graphed_callables"
    r"|copy\.(deep)?copy|builtins\.(staticmethod|classmethod|property)"
)
_OWN_OPERATOR = re.compile(
    r"torch\.ops\.(load_library$|(?!(aten|prims|mkldnn\w*|mkl|onednn|_?quantized|inductor|sparse|torchvision|xformers)\.)\w+\.\w+)"
    r"|torch\.library\.Library$|triton\."
)
#: Modules that can be reached through another's imports: ``torch.os.system`` is ``os.system``.
_DETOUR = re.compile(
    r"(?:\w+\.)*(\w+)\._?"
    r"(os|sys|ctypes|builtins|inspect|gc|subprocess|threading|signal|socket|importlib|multiprocessing|shutil)(?=\.|$)"
)


@dataclass(frozen=True, slots=True)
class ConstantText:
    """A string, or bytes, that the file writes out."""

    text: str


Meaning = DottedName | ConstantText | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef


class PythonNames:
    """Answers what an expression may mean; each expression is looked at once."""

    def __init__(self, scopes: PythonScopes) -> None:
        self._scopes = scopes
        self._known: dict[ast.AST, tuple[Meaning, ...]] = {}
        self._depth = 0

    def of(self, node: ast.AST | DottedName, scope: NameScope) -> tuple[Meaning, ...]:
        """Everything that the expression may mean."""
        if isinstance(node, DottedName | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            return (node,)
        if node not in self._known:
            # In a circle of assignments, and below the deepest expression that is followed, this is the answer.
            self._known[node] = ()
            if self._depth < _DEEPEST:
                self._depth += 1
                self._known[node] = tuple(dict.fromkeys(self._find(node, scope)))[:_MOST]
                self._depth -= 1
        return self._known[node]

    def names(self, node: ast.AST, scope: NameScope) -> list[str]:
        """The dotted names among the meanings; an object's ends in "()"."""
        return [meaning.name for meaning in self.of(node, scope) if isinstance(meaning, DottedName)]

    def is_tensor(self, node: ast.expr, scope: NameScope) -> bool:
        """Whether the expression may be a tensor; a container of tensors written on the spot is none."""
        return not isinstance(node, ast.Tuple | ast.List | ast.Dict) and TENSOR in self.of(node, scope)

    def text(self, node: ast.expr, scope: NameScope, unknown: str | None = None) -> str | None:
        """The string that the expression is; `unknown` replaces parts that are not constant.

        None when it is no string, or has unknown parts and `unknown` is None.
        """
        match node:
            case ast.JoinedStr(values=parts):
                values = [part.value if isinstance(part, ast.FormattedValue) else part for part in parts]
                texts = [
                    str(value.value) if isinstance(value, ast.Constant) else self.text(value, scope) for value in values
                ]
            case ast.BinOp(op=ast.Add()):
                texts = [self.text(part, scope, unknown) for part in members_of_sum(node)]
            case _:
                texts = [next((one.text for one in self.of(node, scope) if isinstance(one, ConstantText)), None)]
        if all(text is None for text in texts) or (unknown is None and None in texts):
            return None
        return "".join(unknown or "" if text is None else text for text in texts)

    def attribute(self, meaning: Meaning, name: str) -> Iterable[Meaning]:
        """What ``meaning.name`` means."""
        match meaning:
            case DottedName("torch.Tensor()"):
                if name in {"T", "mT", "H", "mH", "data", "grad", "real", "imag"}:
                    return [TENSOR]
                return [] if name in _CONTAINER_METHODS else [DottedName(f"torch.Tensor.{name}")]
            case DottedName("built()"):
                return [BUILT]
            case DottedName("own()") | ast.ClassDef():
                found = [one for value in self._scopes.attributes.get(name, [])[:16] for one in self.of(*value)]
                return found or [one for base in self._inherited() for one in self.attribute(base, name)]
            case DottedName(base) if base.endswith("()"):  # an object of torch.nn
                if name.startswith(("weight", "bias", "running_", "in_proj", "out_proj")):
                    return [TENSOR]
                return [DottedName(f"{base[:-2]}.{name}")] if name in {"forward", "__call__", "_conv_forward"} else []
            case DottedName(base):
                return [DottedName(canonical(f"{base}.{name}"))]
        return []

    def _inherited(self) -> list[Meaning]:
        """Objects of the classes of torch.nn that classes of the file are derived from."""
        names = [
            name for base, scope in self._scopes.bases if isinstance(base, ast.expr) for name in self.names(base, scope)
        ]
        return [DottedName(f"{name}()") for name in names if MODULE_CLASS.match(name)]

    def _find(self, node: ast.AST, scope: NameScope) -> Iterable[Meaning]:
        match node:
            case ast.Constant(value=str() as text):
                return [ConstantText(text)]
            case ast.Constant(value=bytes() as data):
                return [ConstantText(data.decode("latin-1"))]
            case ast.Name(id=name):
                return self._name(name, scope)
            case ast.Attribute(value=base, attr=name):
                return [found for meaning in self.of(base, scope) for found in self.attribute(meaning, name)]
            case ast.Subscript(value=base, slice=key):
                return [found for meaning in self.of(base, scope) for found in self._item(meaning, key, scope)]
            case ast.Call():
                return self._call(node, scope)
            case ast.JoinedStr() | ast.BinOp(op=ast.Add()) if (joined := self.text(node, scope)) is not None:
                return [ConstantText(joined)]
            case ast.BinOp(left=left, right=right):
                operands = members_of_sum(node) if isinstance(node.op, ast.Add) else [left, right]
                return [one for one in self._all(operands, scope) if one == TENSOR]
            case ast.Compare(left=left, comparators=others):
                return [one for one in self._all([left, *others], scope) if one == TENSOR]
            case ast.IfExp(body=first, orelse=second):
                return self._all([first, second], scope)
            case ast.Dict(values=members) | ast.BoolOp(values=members):
                return self._all(members, scope)
            case ast.Tuple(elts=members) | ast.List(elts=members) | ast.Set(elts=members):
                return self._all(members, scope)
            case ast.UnaryOp(operand=value) | ast.NamedExpr(value=value) | ast.Starred(value=value):
                return [] if isinstance(getattr(node, "op", None), ast.Not) else self.of(value, scope)
            case (
                ast.DictComp(value=member)
                | ast.ListComp(elt=member)
                | ast.SetComp(elt=member)
                | ast.GeneratorExp(elt=member)
            ):
                return self.of(member, scope)
        return []

    def _all(self, nodes: list[ast.expr], scope: NameScope) -> list[Meaning]:
        return [meaning for node in nodes[:128] for meaning in self.of(node, scope)]

    def _name(self, name: str, scope: NameScope) -> Iterable[Meaning]:
        owner = scope.owner_of(name)
        if owner is not None:
            return [one for value in owner.bound[name][:16] for one in self.of(*value)]
        if hasattr(builtins, name):
            return [DottedName(f"builtins.{name}")]
        return [DottedName(canonical(f"{module}.{name}")) for module in self._scopes.stars]

    def _item(self, meaning: Meaning, key: ast.expr, scope: NameScope) -> Iterable[Meaning]:
        """``meaning[key]``: a container means its members, a namespace is asked for a name."""
        if isinstance(meaning, DottedName) and (meaning.name == "sys.modules" or meaning.name.endswith(".__dict__")):
            text = self.text(key, scope)
            base = meaning.name.removesuffix("sys.modules").removesuffix("__dict__")
            return [] if text is None else [DottedName(canonical(base + text))]
        return [] if isinstance(meaning, ConstantText) else [meaning]

    def _call(self, node: ast.Call, scope: NameScope) -> Iterable[Meaning]:
        found: list[Meaning] = []
        for function in self.of(node.func, scope):
            match function:
                case DottedName(name) if name.endswith("()"):
                    found.append(BUILT if function == BUILT else TENSOR)
                case DottedName(name):
                    found += self._call_named(name, node, scope)
                case ast.ClassDef():
                    found.append(OWN)
                case ast.Lambda(body=body):
                    found += self.of(body, self._scopes.by_node[function])
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    found += self._all(_returned(function), self._scopes.by_node[function])
        if isinstance(node.func, ast.Attribute) and node.func.attr in MEMBERS:
            found += [one for one in self.of(node.func.value, scope) if one not in {TENSOR, OWN}]
        return found

    def _call_named(self, name: str, node: ast.Call, scope: NameScope) -> Iterable[Meaning]:
        arguments = node.args
        match name, arguments:
            case "builtins.getattr" | "inspect.getattr_static", [base, key, *default]:
                text = self.text(key, scope)
                bases = () if text is None else self.of(base, scope)
                return [*self._all(default, scope), *(one for it in bases for one in self.attribute(it, text or ""))]
            case "builtins.__import__" | "importlib.import_module", [key, *_]:
                module = self.text(key, scope)
                return (
                    [] if module is None else [DottedName(module.partition(".")[0] if "__import__" in name else module)]
                )
            case "builtins.vars", [base, *_]:
                return [DottedName(f"{found}.__dict__") for found in self.names(base, scope)]
            case "builtins.super", _:
                return self._inherited()
            case "builtins.type", [base]:
                return [one for one in self.of(base, scope) if one == OWN]
        if name in BUILDERS or LIBRARY_LOADER.fullmatch(name) or _OWN_OPERATOR.match(name):
            return [BUILT]
        if _TRANSPARENT.fullmatch(name):
            return self._all(arguments[:1], scope)
        if _COLLECTION.fullmatch(name) or _NN_CONTAINER.fullmatch(name):
            return self._all([*arguments, *(keyword.value for keyword in node.keywords)], scope)
        if gives_tensor(name):
            return [TENSOR]
        return [DottedName(f"{name}()")] if MODULE_CLASS.fullmatch(name) else []


def canonical(name: str) -> str:
    """The name without detours through other modules' imports."""
    if name.partition(".")[0] not in PROTECTED or name.startswith("torch.signal."):
        return name
    found = _DETOUR.match(name)
    return name if found is None or found[1] == found[2] else name[found.start(2) :]


def members_of_sum(node: ast.expr) -> list[ast.expr]:
    """The members of ``a + b + c + …``, without recursion: a source may be written in a thousand parts."""
    members: list[ast.expr] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        members.append(node.right)
        node = node.left
    return [node, *reversed(members)]


def _returned(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.expr]:
    """What a function returns itself, not what functions in it return."""
    found: list[ast.expr] = []
    stack: list[ast.AST] = list(function.body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Return) and node.value is not None:
            found.append(node.value)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.expr):
            stack.extend(ast.iter_child_nodes(node))
    return found
