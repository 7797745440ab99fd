"""The text of a module that Inductor generates: what of it a kernel's file needs, and the names that it defines."""

import ast
import re

from kbevolve.configs.reference import without
from kbevolve.configs.syntax import expression, parse

#: Top-level names of a generated module that only serve to run it alone.
_BENCHMARK = ("get_args", "benchmark_compiled_module")

#: Options of a Triton kernel, and what Inductor's runtime takes for them when they are absent (PyTorch 2.13).
_DEFAULTS = {
    "False": "are_deterministic_algorithms_enabled atomic_add_found deterministic force_disable_caches "
    "force_filter_reduction_configs max_autotune max_autotune_pointwise no_x_dim store_cubin",
    "True": "assert_indirect_indexing autotune_local_cache autotune_pointwise dynamic_scale_rblock optimize_mem",
    "None": "autotune_remote_cache",
    "set()": "autotune_hints",
    "256": "min_split_scan_rblock",
}


def pruned(code: str) -> str:
    """The generated module without its benchmark, comments, options that are off, and unused names."""
    code = re.sub(r"^[ \t]*#( .*)?\n", "", code, flags=re.M)  # `#include` and `#pragma` have no blank
    code = re.sub(r"(?<=^    inductor_meta=)\{.*\}(?=,$)", _without_defaults, code, flags=re.M)
    code = re.sub(r"\n    def recursively_apply_fns\(self, fns\):\n(?: {8}.*\n)+", "", code)
    while True:
        tree = parse(code)
        names = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store)]
        unused = [node for node in tree.body if _is_unused(node, {name.id for name in names} | {"call"})]
        if not unused:
            return code
        code = without(code, unused)


def _without_defaults(options: re.Match[str]) -> str:
    """A kernel's options without those at their defaults, and without the hash for a cache that is off."""
    tree = expression(options[0])
    assert isinstance(tree, ast.Dict), "the pattern has braces"
    pairs = [(ast.unparse(key), ast.unparse(value)) for key, value in zip(tree.keys, tree.values, strict=True) if key]
    kept = [
        f"{key}: {value}"
        for key, value in pairs
        if key.strip("'") not in ("backend_hash", *_DEFAULTS.get(value, "").split())
    ]
    return f"{{{', '.join(kept)}}}"


def _is_unused(node: ast.stmt, used: set[str]) -> bool:
    match node:
        case ast.If() | ast.Expr(value=ast.Constant()):  # `if __name__ == "__main__"`, and notes in a string
            return True
        case ast.FunctionDef(name=name):
            return name in _BENCHMARK
        case ast.Import() | ast.ImportFrom():
            return not used.intersection((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name not in used
    return False


def defined(code: str) -> set[str]:
    """Names that a module defines at its top level, imports aside."""
    names: set[str] = set()
    for node in parse(code).body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Assign(targets=targets):
                names.update(name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))
    return names
