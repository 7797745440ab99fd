"""Which functions of a kernel file a call of the model may run, and which names anything reads."""

import ast
from collections import Counter, defaultdict

from kbevolve.evaluators.lint.syntax import chain
from kbevolve.evaluators.lint.words import words

#: Methods that run when an object is made, not when it is called.
_MAKING = words("""
    __init__ __new__ __post_init__ __init_subclass__ __set_name__ __del__ __setstate__
""")
#: Functions and methods that look something up by the names among their arguments.
_LOOK_UPS = words("getattr methodcaller attrgetter __getattribute__ __getattr__ get pop")
#: What is not known of a name; no name holds this character.
_ANYTHING = "\0"
#: Patterns with unknown parts that are told apart; a file with more of them may look anything up.
_MOST_PATTERNS = 64


class Reach:
    """Everything that may run in `forward`, found by name; what only prepares the model stays out.

    A function that is called while the model is made, and nowhere else, prepares it. One that is mentioned without
    being called, as in ``self.product = self.compute``, is kept for later, and so is what a generator does.
    """

    def __init__(self, tree: ast.Module) -> None:
        #: Definition -> the names that it mentions.
        self._mentions: dict[str, set[str]] = defaultdict(set)
        #: Every name that is read anywhere, as a variable, an attribute or a constant string.
        self.read: set[str] = set()
        #: Whether documentation may serve as code.
        self.reads_documentation = False
        self._defined: set[str] = set()
        #: Patterns of the names that something is looked up by.
        self._looked_up: set[str] = set()
        self._roots: set[str] = set()
        self._texts = _constant_texts(tree)
        self._walk(tree)
        self._has_forward = "forward" in self._defined
        self._reached = self._closure()

    def runs(self, function: str) -> bool:
        """Whether a function of this name may run during a call of the model."""
        return function in self._reached or not self._has_forward

    def _walk(self, tree: ast.Module) -> None:
        stack: list[tuple[ast.AST, str]] = [(tree, "")]
        called: set[ast.expr] = set()
        while stack:
            node, owner = stack.pop()
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    owner = name
                    self._defined.add(name)
                    dunder = name.startswith("__") and name not in _MAKING
                    if name == "forward" or dunder or _runs_later(node):
                        self._roots.add(name)
                case ast.ClassDef(name=name):
                    # Making an object inside `forward` runs its constructor.
                    self._mentions[name].add("__init__" if owner else name)
                case ast.Assign(targets=[ast.Name(id=name) | ast.Attribute(attr=name)]) if not owner:
                    owner = name
                case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name):
                    self._read(name, owner)
                    if node not in called and isinstance(node.ctx, ast.Load):
                        self._roots.add(name)
                case ast.Constant(value=str() as name) if len(name) < 64 and name.isidentifier():
                    self._read(name, owner)
                case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name) as function, args=arguments):
                    called.add(function)
                    if name in _LOOK_UPS:
                        self._look_up(
                            arguments[1:2] if name == "getattr" else arguments, sure=name not in {"get", "pop"}
                        )
                case ast.Subscript(slice=key):
                    self._look_up([key], sure=False)
            stack.extend((child, owner) for child in ast.iter_child_nodes(node))

    def _read(self, name: str, owner: str) -> None:
        self.read.add(name)
        if owner:
            self._mentions[owner].add(name)
        if name in {"__doc__", "getdoc", "getsource", "getsourcelines", "__file__", "linecache"}:
            self.reads_documentation = True

    def _look_up(self, keys: list[ast.expr], *, sure: bool) -> None:
        """Something is asked for by these keys; unless it is `sure` that they are names, only texts count."""
        for key in keys:
            pattern = self._pattern(key)
            if sure or pattern.replace(_ANYTHING, ""):
                self._looked_up.add(pattern)

    def _pattern(self, key: ast.expr) -> str:
        """What a name that is put together can be."""
        match key:
            case ast.Constant(value=str() as text):
                return text
            case ast.Name(id=name):
                return self._texts.get(name, _ANYTHING)
            case ast.FormattedValue(value=value):
                return self._pattern(value)
            case ast.JoinedStr(values=parts):
                return "".join(map(self._pattern, parts))
            case ast.BinOp(op=ast.Add()):
                parts = chain(key)
                return "".join(map(self._pattern, parts))
        return _ANYTHING

    def _closure(self) -> set[str]:
        reached: set[str] = set()
        patterns = {pattern for pattern in self._looked_up if _ANYTHING in pattern}
        if len(patterns) > _MOST_PATTERNS:
            patterns = {_ANYTHING}
        found = {name for name in self._defined if any(_fits(name, pattern) for pattern in patterns)}
        waiting = self._roots | found | self._looked_up
        while waiting:
            name = waiting.pop()
            reached.add(name)
            waiting |= self._mentions.get(name, set()) - reached
        return reached


def _fits(name: str, pattern: str) -> bool:
    """Whether a name can be what the pattern says. No regular expression: a kernel could make one that never ends."""
    first, *middle, last = pattern.split(_ANYTHING)
    at = len(first)
    for piece in middle:
        at = name.find(piece, at) + len(piece)
        if at < len(piece):
            return False
    return name.startswith(first) and name.endswith(last) and at + len(last) <= len(name)


def _runs_later(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether the body runs when somebody asks for the next value, not when the function is called."""
    if isinstance(function, ast.AsyncFunctionDef):
        return True
    stack: list[ast.AST] = list(function.body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            stack.extend(ast.iter_child_nodes(node))
    return False


def _constant_texts(tree: ast.Module) -> dict[str, str]:
    """Names that stand for one text in the whole file."""
    texts: dict[str, str] = {}
    given: Counter[str] = Counter()
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str() as text)):
                texts[name] = text
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                given[name] += 1
    return {name: text for name, text in texts.items() if given[name] == 1}
