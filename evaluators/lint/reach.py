"""Which functions of a kernel file a call of the model may run, and which names anything reads."""

import ast
from collections import defaultdict

from kbevolve.evaluators.lint.words import words

#: Methods that run when an object is made, not when it is called.
_MAKING = words("""
    __init__ __new__ __post_init__ __init_subclass__ __set_name__ __del__ __setstate__
""")


class Reach:
    """Everything that may run in `forward`, found by name; what only prepares the model stays out."""

    def __init__(self, tree: ast.Module) -> None:
        #: Definition -> the names that it mentions.
        self._mentions: dict[str, set[str]] = defaultdict(set)
        #: Every name that is read anywhere, as a variable, an attribute or a constant string.
        self.read: set[str] = set()
        #: Whether documentation may serve as code.
        self.reads_documentation = False
        #: Whether functions are called by computed names.
        self._by_computed_name = False
        self._roots: set[str] = set()
        self._walk(tree)
        self._reached = self._closure()

    def runs(self, function: str) -> bool:
        """Whether a function of this name may run during a call of the model."""
        return function in self._reached or self._by_computed_name or "forward" not in self._roots

    def _walk(self, tree: ast.Module) -> None:
        stack: list[tuple[ast.AST, str]] = [(tree, "")]
        while stack:
            node, owner = stack.pop()
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    owner = name
                    if name == "forward" or (name.startswith("__") and name not in _MAKING):
                        self._roots.add(name)
                case ast.ClassDef(name=name):
                    # Making an object inside `forward` runs its constructor.
                    self._mentions[name].add("__init__" if owner else name)
                case ast.Assign(targets=[ast.Name(id=name) | ast.Attribute(attr=name)]) if not owner:
                    owner = name
                case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name):
                    self._read(name, owner)
                case ast.Constant(value=str() as name) if len(name) < 64 and name.isidentifier():
                    self._read(name, owner)
                case ast.Call(func=ast.Name(id="getattr" | "methodcaller"), args=[_, key, *_]):
                    self._by_computed_name |= not isinstance(key, ast.Constant | ast.BinOp | ast.JoinedStr)
            stack.extend((child, owner) for child in ast.iter_child_nodes(node))

    def _read(self, name: str, owner: str) -> None:
        self.read.add(name)
        if owner:
            self._mentions[owner].add(name)
        if name in {"__doc__", "getdoc", "getsource", "getsourcelines", "__file__", "linecache"}:
            self.reads_documentation = True

    def _closure(self) -> set[str]:
        reached: set[str] = set()
        waiting = set(self._roots)
        while waiting:
            name = waiting.pop()
            reached.add(name)
            waiting |= self._mentions.get(name, set()) - reached
        return reached
