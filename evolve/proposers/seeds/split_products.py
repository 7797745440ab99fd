"""Inductor's code with its products on the tensor cores: a second starting kernel for fp32 tasks on sm_90.

Inductor fuses what is around a product and leaves the product to a library, which computes it in strict fp32 without
tensor cores. Here each such call becomes one of a template that splits its operands into pairs of fp16
(`configs/templates/split_products.py`), or stays the library's, as a tunable of that call says.
"""

import ast

from kbevolve.configs.templates import template

#: Calls of Inductor's code that have a counterpart in the template.
_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")
#: Calls with a tunable of their own; later ones share the last, so that the search stays small.
_MOST_TUNABLES = 6


def with_split_products(source: str) -> str | None:
    """A file of Inductor's code with split products; None where it has no product that a library computes.

    Args:
        source: from `inductor.wrap`, of an fp32 task.
    """
    functions = [found for node in ast.walk(ast.parse(source)) if (found := _product(node))]
    if not functions:
        return None
    functions.sort(key=lambda function: (function.lineno, function.col_offset))
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    text = bytearray(source.encode())
    for number, function in reversed(list(enumerate(functions))):
        begin = starts[function.lineno - 1] + function.col_offset
        end = begin + len(f"extern_kernels.{function.attr}")
        name = f"PRODUCT_{min(number, _MOST_TUNABLES - 1)}"
        text[begin:end] = f"(split_{function.attr} if {name} else extern_kernels.{function.attr})".encode()
    names = range(min(len(functions), _MOST_TUNABLES))
    switches = "".join(f"PRODUCT_{number} = 1  # tune: 1, 0\n" for number in names)
    place = starts[_first_statement(source)]
    text[place:place] = (
        f"{template('split_products')}\n\n# 1: a split product; 0: the library's.\n{switches}\n\n".encode()
    )
    return text.decode()


def _product(node: ast.AST) -> ast.Attribute | None:
    """The function of a call that writes a product to a buffer of its caller."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="extern_kernels")) as function, keywords=keywords):
            if function.attr in _PRODUCTS and any(keyword.arg == "out" for keyword in keywords):
                return function
    return None


def _first_statement(source: str) -> int:
    """The line, from 0, of the first statement that is neither a text, an import nor an assignment to an attribute."""
    for node in ast.parse(source).body:
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant()):
                continue
            case ast.Assign(targets=[ast.Attribute()]):
                continue
        return node.lineno - 1
    return 0
