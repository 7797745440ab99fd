"""The strings of a kernel file that a compiler gets and nothing else sees, and what a compiler sees of them.

Two common ways are recognised: torch's ``load_inline``, and the functions ``build`` of our prompts and starting kernels
by their whole text. A string that any other code uses, were it only ``len``, does not count. The path of the library,
in which those functions write a hash of the text, is taken to be no part of what a kernel does.
"""

import ast
import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from kbevolve.islands.source.tree import bound_by, is_string

#: Functions that only write a text to a file of its own, compile it and load it (`builder_id`): those of the starting
#: kernels in C++ and CUDA, then those of the prompts. A test compares them with the files.
BUILDERS = frozenset(("562a668c38e08edb", "113d3c92a1676568", "b92158e4238b5052", "4686102c61f5ee9f"))
#: What the names that these functions use must mean.
_MEANINGS: Mapping[str, str] = {
    "ctypes": "ctypes",
    "hashlib": "hashlib",
    "os": "os",
    "tempfile": "tempfile",
    "Path": "pathlib.Path",
    "cpp_extension": "torch.utils.cpp_extension",
}
_LOAD_INLINE = "torch.utils.cpp_extension.load_inline"
#: The global that the builders of starting kernels compile; those of prompts compile their parameter `source`.
_GLOBAL = "SOURCE"
#: The program may see its lines or its file, or comments are not found by tokens alone.
_UNCLEAR = re.compile(
    r'R"|[\r\f\v\0]|\\[ \t]+\n|\?\?[=/\'()!<>-]|#[ \t]*include[^"<\n]*<[^>\n]{0,200}?(?://|/\*|[ \t]{2})|'
    r"__LINE__|__FILE__|__BASE_FILE__|__FILE_NAME__|__TIMESTAMP__|source_location|__builtin_(?:LINE|FILE|FUNCTION|COLUMN)|"
    r"__has_include|__has_embed|\bincbin\b|\bembed\b|#[ \t]*(?:line|import|include_next)\b"
)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_TOKEN = re.compile(
    r"""(?P<blank>(?:[ \t\n]|//[^\n]*|/\*.*?\*/)+)
    |(?P<kept>[A-Za-z_$][\w$]*|\.?[0-9](?:'\w|[\w.])*|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<open>["']|/\*)""",
    re.DOTALL | re.VERBOSE | re.ASCII,
)


def compiled_texts(tree: ast.Module, nodes: Sequence[ast.AST]) -> list[ast.Constant]:
    """The string constants of a file that are compiled, and nothing else; `nodes` are all nodes of its tree."""
    if not any(isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" in node.value for node in nodes):
        return []  # native code has lines
    imported = {pair for node in nodes for pair in _imports(node)}
    bound = Counter(name for name, _ in imported)
    bound.update(name for node in nodes if not isinstance(node, ast.alias) for name in bound_by(node))
    meanings = {name: meaning for name, meaning in imported if bound[name] == 1}
    if any(_changes(node, meanings) for node in nodes):
        return []
    given: list[ast.expr] = []
    builders = {}
    for one in tree.body:
        if isinstance(one, ast.FunctionDef) and bound[one.name] == 1 and _is_builder(one, bound, meanings):
            builders[one.name] = [argument.arg for argument in one.args.args] == ["source"]
            if not builders[one.name]:
                given += [inner for inner in ast.walk(one) if isinstance(inner, ast.Name) and inner.id == _GLOBAL]
    for node in nodes:
        match node:
            case ast.Call(func=ast.Name(id=name), args=[text], keywords=[]) if builders.get(name):
                given.append(text)
            case ast.Call(func=called, keywords=keywords) if _meaning(called, meanings) == _LOAD_INLINE:
                values = [word.value for word in keywords if word.arg in ("cpp_sources", "cuda_sources")]
                for value in values:
                    given += value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
    found = [node for node in given if isinstance(node, ast.Constant)]
    compiled = Counter(node.id for node in given if isinstance(node, ast.Name))
    read = Counter(node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant() as text):
                if bound[name] == 1 and read[name] == compiled[name] > 0:
                    found.append(text)
    return [node for node in found if isinstance(node.value, str)]


def builder_id(function: ast.FunctionDef) -> str:
    """Hash of a function's parameters and body, without its docstring."""
    body = [statement for statement in function.body if not is_string(statement)]
    return hashlib.sha256("\n".join(map(ast.dump, [function.args, *body])).encode()).hexdigest()[:16]


def _is_builder(function: ast.FunctionDef, bound: Counter[str], meanings: Mapping[str, str]) -> bool:
    used = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)} & _MEANINGS.keys()
    means = all(meanings.get(name) == _MEANINGS[name] for name in used)
    return "cpp_extension" in used and means and not bound["str"] and builder_id(function) in BUILDERS


def _changes(node: ast.AST, imported: Mapping[str, str]) -> bool:
    """Whether a node may exchange a function of a module: then nothing is known of who sees a text."""
    match node:
        case ast.Name(id="setattr" | "delattr"):
            return True
        case ast.Attribute(attr=name, ctx=ast.Store() | ast.Del()):
            owner: ast.expr = node
            while isinstance(owner, ast.Attribute):
                owner = owner.value
            return name in ("load", "load_inline") or (isinstance(owner, ast.Name) and owner.id in imported)
    return False


def _imports(node: ast.AST) -> Iterator[tuple[str, str]]:
    """The names that a statement imports, with what they stand for."""
    match node:
        case ast.Import(names=aliases):
            for alias in aliases:
                root = alias.name.partition(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (root, root)
        case ast.ImportFrom(module=module, names=aliases, level=level):
            for alias in aliases:
                yield alias.asname or alias.name, f"{'.' * level}{module}.{alias.name}"


def _meaning(node: ast.expr, meanings: Mapping[str, str]) -> str:
    """The dotted name that an expression stands for by the file's imports; "" for anything else."""
    match node:
        case ast.Name(id=name):
            return meanings.get(name, "")
        case ast.Attribute(value=value, attr=name) if root := _meaning(value, meanings):
            return f"{root}.{name}"
    return ""


def native_form(text: str) -> str:
    """A C++ or CUDA file without comments, indentation and repeated blanks; a compiler makes the same program of it.

    Where comments cannot be found by tokens alone (raw strings, trigraphs, a quote that never ends), and where the
    program may see its own lines or file, the text stays as it is. Names stay: only a compiler knows which are local.
    """
    joined = text.replace("\\\n", "")
    if _UNCLEAR.search(joined) or any(found["open"] for found in _TOKEN.finditer(joined)):
        return f"\x00{text}"
    return _TOKEN.sub(_without_comments, joined).strip()


def _without_comments(token: re.Match[str]) -> str:
    # A line's end may end a line of the preprocessor, unless it is inside a comment.
    return token[0] if token["blank"] is None else "\n" if "\n" in _COMMENT.sub("", token[0]) else " "
