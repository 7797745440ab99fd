"""What the expressions of a kernel's Python mean: imports and aliases undone, attributes of the model looked up.

It follows assignments, `getattr` with a constant name, containers, functions of the file and modules of torch.nn.
docs/tags.md lists what it does not follow. An expression that it does not understand has no meaning. A meaning is

- a dotted name, "torch.mm"; for an object that of its class with parentheses, "torch.Tensor()";
- a string that the file writes out, behind a quotation mark;
- a function or class of the file.
"""

import ast
import builtins
import re
import textwrap
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from kbevolve.evaluators.lint.operations import MODULE_CLASS, gives_tensor
from kbevolve.evaluators.lint.python_scopes import OWN, TENSOR, NameScope, PythonScopes
from kbevolve.evaluators.lint.tables import BUILDERS, PATTERNS, PROTECTED, words

#: Expressions within expressions that are followed; honest code needs about ten.
_DEEPEST = 60
#: Things that one expression may mean; the first are kept.
_MOST = 12
#: Characters of a string that is put together; a kernel's source has some ten thousand.
MOST_TEXT = 200_000

#: What the kernel's own builder made: an extension, a library, a function in it.
BUILT = "built()"
#: A type of functions in machine code, as ctypes makes them.
PROTOTYPE = "prototype()"
#: Methods that give a container's members.
MEMBERS = words("values items get pop copy children modules")
#: Methods of containers that no tensor has: they are asked of a container of tensors.
_CONTAINER_METHODS = {name for kind in (list, dict, set, deque) for name in dir(kind) if name[0] != "_"} - {
    "add",
    "sort",
    "values",
}
#: Modules that can be reached through another's imports: ``torch.os.system`` is ``os.system``.
_DETOUR = re.compile(
    r"(?:\w+\.)*(\w+)\._?"
    r"(os|sys|ctypes|builtins|inspect|gc|subprocess|threading|signal|socket|importlib|multiprocessing|shutil|pickle|marshal"
    r"|runpy|sympy|timeit|shelve)(?=\.|$)"
)
_SELF = re.compile(r"^builtins\.\w+\.__self__(?=\.|$)")

Meaning = str | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef


class WrittenOut(NamedTuple):
    """A text that is written out in the file."""

    text: str
    #: Variables whose one value was taken for all that they ever hold.
    names: frozenset[str] = frozenset()


class PythonNames:
    """Answers what an expression may mean; each expression is looked at once."""

    def __init__(self, scopes: PythonScopes) -> None:
        self._scopes = scopes
        self._known: dict[ast.AST, tuple[Meaning, ...]] = {}
        self._constants: dict[ast.AST, WrittenOut | None] = {}
        self._depth = 0

    def of(self, node: ast.AST | str, scope: NameScope) -> tuple[Meaning, ...]:
        """Everything that the expression may mean."""
        if isinstance(node, Meaning):
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
        return [meaning for meaning in self.of(node, scope) if isinstance(meaning, str) and meaning[0] != '"']

    def text(self, node: ast.expr, scope: NameScope, unknown: str | None = None) -> str | None:
        """The string that the expression is; `unknown` replaces parts that are not constant.

        None when it is no string, or has unknown parts and `unknown` is None.
        """
        match node:
            case ast.JoinedStr(values=parts):
                values = [part.value if isinstance(part, ast.FormattedValue) else part for part in parts]
                texts = [self.text(value, scope) for value in values]
            case ast.BinOp(op=ast.Add()):
                texts = [self.text(part, scope, unknown) for part in operands_of(node)]
            case _:
                meanings = self.of(node, scope)
                texts = [next((one[1:] for one in meanings if isinstance(one, str) and one[0] == '"'), None)]
        if all(text is None for text in texts) or (unknown is None and None in texts):
            return None
        joined = [unknown or "" if text is None else text for text in texts]
        return "".join(joined) if sum(map(len, joined)) <= MOST_TEXT else None

    def constants(self, node: ast.expr, scope: NameScope) -> "WrittenOut | None":
        """The text that the expression is; None unless the file writes all of it out.

        Stricter than `text`: a name must have one value in the whole file.
        """
        if node not in self._constants:
            self._constants[node] = None  # in a circle, and below the deepest expression
            if self._depth < _DEEPEST:
                self._depth += 1
                self._constants[node] = self._find_constants(node, scope)
                self._depth -= 1
        return self._constants[node]

    def _find_constants(self, node: ast.expr, scope: NameScope) -> "WrittenOut | None":
        match node:
            case ast.Constant(value=str() as text):
                return WrittenOut(text)
            case ast.Constant(value=bytes() as code) if code.isascii() and b"coding" not in code:
                return WrittenOut(code.decode())
            case ast.FormattedValue(value=ast.Constant(value=str() | int() as value), format_spec=None, conversion=-1):
                return WrittenOut(str(value))
            case ast.FormattedValue(value=value, format_spec=None, conversion=-1):
                return self.constants(value, scope)
            case ast.JoinedStr() | ast.BinOp(op=ast.Add()):
                members = node.values if isinstance(node, ast.JoinedStr) else operands_of(node)
                parts = [part for member in members if (part := self.constants(member, scope)) is not None]
                if len(parts) < len(members) or sum(len(part.text) for part in parts) > MOST_TEXT:
                    return None
                names = frozenset[str]().union(*(part.names for part in parts))
                return WrittenOut("".join(part.text for part in parts), names)
            case ast.Name(id=name) if (owner := scope.owner_of(name)) and name not in self._scopes.uncertain:
                match owner.bound[name]:
                    case [(ast.expr() as value, at)] if found := self.constants(value, at):
                        return WrittenOut(found.text, found.names | {name})
            case ast.Call(func=function, args=[text, *_]) if self.names(function, scope) == ["builtins.compile"]:
                return self.constants(text, scope)
            case ast.Call(func=function, args=[text]) if self.names(function, scope) == ["textwrap.dedent"]:
                found = self.constants(text, scope)
                return None if found is None else WrittenOut(textwrap.dedent(found.text), found.names)
        return None

    def attribute(self, meaning: Meaning, name: str) -> Iterable[Meaning]:
        """What ``meaning.name`` means."""
        match meaning:
            case "torch.Tensor()":
                if name in {"T", "mT", "H", "mH", "data", "grad", "real", "imag"}:
                    return [TENSOR]
                return [] if name in _CONTAINER_METHODS else [f"torch.Tensor.{name}"]
            case "built()":
                return [BUILT]
            case "own()" | ast.ClassDef():
                found = [one for value in self._scopes.attributes.get(name, [])[:16] for one in self.of(*value)]
                return found or [one for base in self._inherited() for one in self.attribute(base, name)]
            case str() if meaning.endswith("()"):  # an object of torch.nn
                if name.startswith(("weight", "bias", "running_", "in_proj", "out_proj")):
                    return [TENSOR]
                return [f"{meaning[:-2]}.{name}"] if name in {"forward", "__call__", "_conv_forward"} else []
            case str() if meaning[0] != '"':
                return [canonical(f"{meaning}.{name}")]
        return []

    def _inherited(self) -> list[Meaning]:
        """Objects of the classes of torch.nn that classes of the file are derived from."""
        names = [name for base, scope in self._scopes.bases for name in self.names(base, scope)]
        return [f"{name}()" for name in names if MODULE_CLASS.match(name)]

    def _find(self, node: ast.AST, scope: NameScope) -> Iterable[Meaning]:
        match node:
            case ast.Constant(value=str() | bytes() as text):
                return [f'"{text if isinstance(text, str) else text.decode("latin-1")}']
            case ast.Name(id=name):
                return self._name(name, scope)
            case ast.Attribute(value=base, attr=name):
                return [found for meaning in self.of(base, scope) for found in self.attribute(meaning, name)]
            case ast.Subscript(value=base, slice=key):
                return [found for meaning in self.of(base, scope) for found in self._item(meaning, key, scope)]
            case ast.Call():
                return self._call(node, scope)
            case ast.JoinedStr() | ast.BinOp(op=ast.Add()) if (joined := self.text(node, scope)) is not None:
                return [f'"{joined}']
            case ast.BinOp() | ast.Compare() | ast.UnaryOp():
                return [one for one in self._all(operands_of(node), scope) if one == TENSOR]
            case ast.IfExp(body=first, orelse=second):
                return self._all([first, second], scope)
            case (
                ast.Dict(values=members)
                | ast.BoolOp(values=members)
                | ast.Tuple(elts=members)
                | ast.List(elts=members)
                | ast.Set(elts=members)
            ):
                return self._all(members, scope)
            case (
                ast.NamedExpr(value=value)
                | ast.Starred(value=value)
                | ast.DictComp(value=value)
                | ast.ListComp(elt=value)
                | ast.SetComp(elt=value)
                | ast.GeneratorExp(elt=value)
            ):
                return self.of(value, scope)
        return []

    def _all(self, nodes: list[ast.expr], scope: NameScope) -> list[Meaning]:
        return [meaning for node in nodes[:128] for meaning in self.of(node, scope)]

    def _name(self, name: str, scope: NameScope) -> Iterable[Meaning]:
        owner = scope.owner_of(name)
        if owner is not None:
            return [one for value in owner.bound[name][:16] for one in self.of(*value)]
        if name == "__builtins__":
            return ["builtins"]
        if hasattr(builtins, name):
            return [f"builtins.{name}"]
        return [canonical(f"{module}.{name}") for module in self._scopes.stars]

    def _item(self, meaning: Meaning, key: ast.expr, scope: NameScope) -> Iterable[Meaning]:
        """``meaning[key]``: a container means its members, a namespace is asked for a name."""
        if isinstance(meaning, str) and (meaning in {"sys.modules", "builtins"} or meaning.endswith(".__dict__")):
            text = self.text(key, scope)
            space = "" if meaning == "sys.modules" else f"{meaning.removesuffix('.__dict__')}."
            return [] if text is None else [canonical(space + text)]
        return [] if isinstance(meaning, str) and meaning[0] == '"' else [meaning]

    def _call(self, node: ast.Call, scope: NameScope) -> Iterable[Meaning]:
        found: list[Meaning] = []
        for function in self.of(node.func, scope):
            match function:
                case ast.ClassDef():
                    found.append(OWN)
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                    found += self._all(self._scopes.returned[function], self._scopes.by_node[function])
                case str() if function.endswith("()"):
                    found.append(BUILT if function == BUILT else TENSOR)
                case str():
                    found += self._call_named(function, node, scope)
        if isinstance(node.func, ast.Attribute) and node.func.attr in MEMBERS:
            found += [one for one in self.of(node.func.value, scope) if one not in {TENSOR, OWN}]
        return found

    def _call_named(self, name: str, node: ast.Call, scope: NameScope) -> Iterable[Meaning]:
        arguments = node.args
        match name, arguments:
            case "builtins.getattr", [base, key, *default]:
                text = self.text(key, scope)
                bases = () if text is None else self.of(base, scope)
                return [*self._all(default, scope), *(one for it in bases for one in self.attribute(it, text or ""))]
            case "builtins.__import__" | "importlib.import_module", [key, *_]:
                module = self.text(key, scope) or ""
                return [module.partition(".")[0] if "__import__" in name else module] if module else []
            case "builtins.vars", [base, *_]:
                return [f"{found}.__dict__" for found in self.names(base, scope)]
            case "builtins.super", _:
                return self._inherited()
            case "builtins.type", [base]:
                return [one for one in self.of(base, scope) if one == OWN]
        if name in {"ctypes.CFUNCTYPE", "ctypes.PYFUNCTYPE"}:
            return [PROTOTYPE]
        if name in BUILDERS or PATTERNS["loads_library"].fullmatch(name) or PATTERNS["own_operators"].match(name):
            return [BUILT]
        if PATTERNS["transparent"].fullmatch(name):
            return self._all(arguments[:1], scope)
        if PATTERNS["collections"].fullmatch(name):
            return self._all([*arguments, *(keyword.value for keyword in node.keywords)], scope)
        if gives_tensor(name):
            return [TENSOR]
        return [f"{name}()"] if MODULE_CLASS.fullmatch(name) else []


def canonical(name: str) -> str:
    """The name without detours through other modules' imports, and through a builtin function's module."""
    name = _SELF.sub("builtins", name)
    if name.partition(".")[0] not in PROTECTED or name.startswith("torch.signal."):
        return name
    found = _DETOUR.match(name)
    return name if found is None or found[1] == found[2] else name[found.start(2) :]


def operands_of(node: ast.AST) -> list[ast.expr]:
    """What an operator computes with; of ``a + b + c + …`` all members, without recursion: there may be a thousand."""
    match node:
        case ast.BinOp(op=ast.Add()):
            members: list[ast.expr] = []
            while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
                members.append(node.right)
                node = node.left
            return [node, *reversed(members)]
        case ast.BinOp(left=first, right=second) | ast.AugAssign(target=first, value=second):
            return [first, second]
        case ast.UnaryOp(op=ast.USub() | ast.Invert(), operand=operand):
            return [operand]
        case ast.Compare(left=left, comparators=others, ops=kinds):
            return [] if isinstance(kinds[0], ast.Is | ast.IsNot | ast.In | ast.NotIn) else [left, *others]
    return []
