"""Inductor's code with its products on the tensor cores: a second starting kernel for fp32 tasks on sm_90.

Inductor fuses what is around a product or a convolution and leaves it to a library, which computes it in strict fp32
without tensor cores. Here each such call becomes one of a template (`configs/templates`), or stays the library's, as a
tunable of that call says. The template splits operands into pairs of fp16, or adds up a convolution's few taps. An
attention that `attention.py` has made one call never writes its scores, and a product of `fusion.py` is written when
what follows it is computed.
"""

import ast

from kbevolve.configs.templates import template
from kbevolve.evolve.proposers.seeds.reachable import names_in, without_unused
from kbevolve.evolve.proposers.tuning.tunables import declared

#: Calls of Inductor's code that have a counterpart in a template: those that write to a buffer, and one that does not.
_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")
_CONVOLUTION = "convolution"
_SPLIT, _DIRECT, _ATTENTION = "split_convolution", "direct_convolution", "split_attention"
_PRODUCT, _FUSED, _GROUPED = "fused_product", "fused_convolution", "fused_grouped"
#: Operators of `attention.py` and `fusion.py` -> the template's function, and that of the library.
_CALLS = {
    "torch.ops.kbevolve.attention.default": (_ATTENTION, "attend_by_library"),
    "torch.ops.kbevolve.product.default": (_PRODUCT, "fused_product_by_library"),
    "torch.ops.kbevolve.convolution.default": (_FUSED, "fused_convolution_by_library"),
    "torch.ops.kbevolve.grouped.default": (_GROUPED, "fused_grouped_by_library"),
}
#: The templates in the order of a file, those that a function needs, and the one that has its tunables.
_ORDER = (
    "functions",
    "no_epilogue",
    "split_pairs",
    "split_products",
    "convolution_product",
    "split_convolution",
    "fused_products",
    "fused_convolutions",
    _DIRECT,
    "fused_groups",
    _ATTENTION,
)
_PRODUCT_FILES = ("split_pairs", "split_products")
_CONVOLUTION_FILES = (*_PRODUCT_FILES, "convolution_product", "split_convolution")
_FILES = {
    _SPLIT: _CONVOLUTION_FILES,
    _DIRECT: (_DIRECT,),
    _ATTENTION: (_ATTENTION,),
    _PRODUCT: ("functions", *_PRODUCT_FILES, "fused_products"),
    _FUSED: ("functions", *_CONVOLUTION_FILES, "fused_products", "fused_convolutions"),
    _GROUPED: ("functions", _DIRECT, "fused_groups"),
}
_TUNED = {
    _SPLIT: "convolution_product",
    _FUSED: "convolution_product",
    _DIRECT: _DIRECT,
    _GROUPED: _DIRECT,
    _ATTENTION: _ATTENTION,
}
#: Calls with a tunable of their own; later ones share the last, so that the search stays small.
_MOST_TUNABLES = 6


def with_split_products(source: str) -> str | None:
    """A file of Inductor's code with split products; None where a library computes nothing of it.

    Args:
        source: from `inductor.wrap`, of an fp32 task; with each attention as one call or not.
    """
    calls = [found for node in ast.walk(ast.parse(source)) if (found := _replaced(node))]
    if not calls:
        return None
    calls.sort(key=lambda call: (call[0].lineno, call[0].col_offset))
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    text = bytearray(source.encode())
    for number, (function, ours) in reversed(list(enumerate(calls))):
        begin = starts[function.lineno - 1] + function.col_offset
        theirs = ast.unparse(function)
        name = f"PRODUCT_{min(number, _MOST_TUNABLES - 1)}"
        other = _CALLS[theirs][1] if theirs in _CALLS else theirs
        text[begin : begin + len(theirs)] = f"({ours} if {name} else {other})".encode()
    names = range(min(len(calls), _MOST_TUNABLES))
    switches = "".join(f"PRODUCT_{number} = 1  # tune: 1, 0\n" for number in names)
    needed = {name for _, ours in calls for name in _FILES.get(ours, _PRODUCT_FILES)}
    if "functions" not in needed:
        needed.add("no_epilogue")
    used = [name for name in _ORDER if name in needed]
    whole = "\n\n\n".join(template(name).strip("\n") for name in ("imports", *used))
    templates = without_unused(whole, names_in(text.decode()))
    there = {one.name for one in declared(templates)}
    # Values of a template that no call has chosen have no effect.
    for name in used:
        its = [at for at, (_, ours) in enumerate(calls) if _TUNED.get(ours, "split_products") == name]
        choices = " or ".join(f"PRODUCT_{at}" for at in sorted({min(at, _MOST_TUNABLES - 1) for at in its}))
        if values := ", ".join(one.name for one in declared(template(name)) if one.name in there):
            switches += f"# tune {values} if: {choices or 0}\n"
    place = starts[_first_statement(source)]
    text[place:place] = f"{templates}\n\n\n# 1: a template's code; 0: the library's.\n{switches}\n\n".encode()
    return text.decode()


def _replaced(node: ast.AST) -> tuple[ast.Attribute, str] | None:
    """The function of a call that a template can take over, and the template's."""
    match node:
        case ast.Call(func=ast.Attribute() as function) if (name := ast.unparse(function)) in _CALLS:
            return function, _CALLS[name][0]
        case ast.Call(func=ast.Attribute(value=ast.Name(id="extern_kernels")) as function, keywords=keywords):
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in keywords}
            if function.attr in _PRODUCTS and "out" in given:
                return function, f"split_{function.attr}"
            if function.attr == _CONVOLUTION and given.get("groups") == "1":
                return function, _SPLIT
            if function.attr == _CONVOLUTION and given.get("transposed") == "False":
                return function, _DIRECT
    return None


def _first_statement(source: str) -> int:
    """The line, from 0, of the first statement that is neither a text, an import nor an assignment to an attribute."""
    for node in ast.parse(source).body:
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant()):
                continue
            case ast.Assign(targets=[ast.Attribute()]):
                continue
            case ast.FunctionDef(decorator_list=[first, *_]):
                return first.lineno - 1
        return node.lineno - 1
    return 0
