"""Which strings of a kernel file are given to a compiler and to nobody else.

What a program does with a string is hard to tell in general. Two ways are told here, and they are the common ones:
torch's own ``load_inline``, and the functions ``build`` of our prompts and starting kernels, recognised by their whole
text. A string that is seen by anything else, were it only ``len``, is none of them. The path of the library, in which
those functions write a hash of the text, is taken to be no part of what a kernel does.
"""

import ast
import copy
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from kbevolve.islands.source.local_names import assigned, in_order, rename

#: The bodies of functions that only write a text to a file of its own, compile it and load it (`builder_id`): those of
#: the starting kernels in C++ and CUDA, then those of the prompts. A test compares them with the files.
BUILDERS = frozenset(("7ea5155d387aec92", "f32ad870b0a6ecd6", "0cc59ce8764963e4", "ff118e4f5af0ae42"))
#: What those functions must mean by the names they use.
_MEANINGS: Mapping[str, str] = {
    "ctypes": "ctypes",
    "hashlib": "hashlib",
    "os": "os",
    "tempfile": "tempfile",
    "Path": "pathlib.Path",
    "cpp_extension": "torch.utils.cpp_extension",
}
_LOAD_INLINE = "torch.utils.cpp_extension.load_inline"
#: Its parameters that are native code, with their positions.
_SOURCES: Mapping[str, int] = {"cpp_sources": 1, "cuda_sources": 2}
#: Name that the builders of starting kernels take their text by; those of prompts take it as their first argument.
_GLOBAL, _PARAMETER = "SOURCE", "source"


def compiled_texts(tree: ast.Module, nodes: Sequence[ast.AST]) -> list[ast.Constant]:
    """The string constants of a file that are compiled, and nothing else.

    Args:
        tree: the whole file.
        nodes: all nodes of it.
    """
    if not any(isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" in node.value for node in nodes):
        return []  # native code has lines
    bound = Counter(_bindings(nodes))
    imports = {name: meaning for name, meaning in _imports(tree) if bound[name] == 1}
    changed = {root for node in nodes if isinstance(node, ast.Attribute) for root in _changed(node)}
    if changed & {*imports, "load", "load_inline"}:
        return []
    builders = _builders(tree, bound, imports)
    calls = (node for node in nodes if isinstance(node, ast.Call))
    given = {id(node): node for call in calls for node in _given(call, imports, builders)}
    for builder in builders.values():
        if not builder.args.args or builder.args.args[0].arg != _PARAMETER:
            names = (node for node in ast.walk(builder) if isinstance(node, ast.Name) and node.id == _GLOBAL)
            given |= {id(node): node for node in names}
    constants = [node for node in given.values() if isinstance(node, ast.Constant)]
    held = {node.id for node in given.values() if isinstance(node, ast.Name) and bound[node.id] == 1}
    elsewhere = {
        node.id
        for node in nodes
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in given
    }
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant() as value) if name in held - elsewhere:
                constants.append(value)
    return [node for node in constants if isinstance(node.value, str)]


def builder_id(function: ast.FunctionDef) -> str:
    """Hash of a function's parameters and body, without its docstring, and with all that it assigns numbered."""
    function = copy.deepcopy(function)
    nodes = in_order(*function.body)
    rename(nodes, assigned(nodes))
    body = [line for line in function.body if not (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))]
    text = "\n".join(map(ast.dump, [function.args, *body]))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _builders(tree: ast.Module, bound: Counter[str], imports: Mapping[str, str]) -> dict[str, ast.FunctionDef]:
    """Known builders of the file by name, if all names that they use mean what they should."""
    if bound["str"] or any(imports.get(name, meaning) != meaning for name, meaning in _MEANINGS.items()):
        return {}
    found = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and bound[node.name] == 1 and not node.decorator_list:
            used = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)} & {*_MEANINGS}
            if "cpp_extension" in used <= {*imports} and builder_id(node) in BUILDERS:
                found[node.name] = node
    return found


def _given(call: ast.Call, imports: Mapping[str, str], builders: Mapping[str, ast.FunctionDef]) -> Iterator[ast.expr]:
    """What a call compiles: constants or names."""
    found: list[ast.expr] = []
    if _meaning(call.func, imports) == _LOAD_INLINE:
        found += [word.value for word in call.keywords if word.arg in _SOURCES]
        starred = any(isinstance(argument, ast.Starred) for argument in call.args)
        found += [] if starred else [call.args[at] for at in _SOURCES.values() if at < len(call.args)]
    elif isinstance(call.func, ast.Name) and call.func.id in builders and len(call.args) == 1 and not call.keywords:
        parameters = builders[call.func.id].args.args
        found += call.args if parameters and parameters[0].arg == _PARAMETER else []
    for value in found:
        yield from value.elts if isinstance(value, ast.List | ast.Tuple) else [value]


def _meaning(node: ast.expr, imports: Mapping[str, str]) -> str:
    """The dotted name that an expression stands for by the file's imports; "" for anything else."""
    match node:
        case ast.Name(id=name):
            return imports.get(name, "")
        case ast.Attribute(value=value, attr=attribute):
            root = _meaning(value, imports)
            return f"{root}.{attribute}" if root else ""
    return ""


def _imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Names bound by the imports at the top level, with what they stand for."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.partition(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (root, root)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)


def _bindings(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """Every name that is bound anywhere, as often as it is; the same ``import torch`` twice counts once."""
    imported: set[tuple[str, str]] = set()
    for node in nodes:
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name
            case ast.MatchMapping(rest=str(name)):
                yield name
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                yield from names
            case ast.Import(names=aliases):
                for alias in aliases:
                    root = alias.name.partition(".")[0]
                    imported.add((alias.asname, alias.name) if alias.asname else (root, root))
            case ast.ImportFrom(names=aliases):
                yield from (alias.asname or alias.name for alias in aliases)
    yield from (name for name, _ in imported)


def _changed(node: ast.Attribute) -> Iterator[str]:
    """Where an attribute is assigned or deleted: its name, and the name at the root of its owner."""
    if not isinstance(node.ctx, ast.Load):
        yield node.attr
        owner: ast.expr = node
        while isinstance(owner, ast.Attribute):
            owner = owner.value
        if isinstance(owner, ast.Name):
            yield owner.id
