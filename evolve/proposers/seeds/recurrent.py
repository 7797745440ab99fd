"""The reference with recurrent layers of a template's, for devices of sm_90.

torch.compile leaves such layers to a library, which launches some kernels for each step of each layer.
"""

import ast

from kbevolve.configs.reference import as_model_new, replaced, without_head
from kbevolve.configs.syntax import parse
from kbevolve.configs.templates import template
from kbevolve.evolve.proposers.seeds.reachable import names_in, without_unused

_TEMPLATES = ("imports", "no_epilogue", "split_pairs", "split_products", "cuda_library", "recurrent")
#: The modules of torch.nn that the template has as ``Recurrent`` and this name.
_LAYERS = ("GRU", "LSTM")


def with_recurrent_layers(source: str) -> str | None:
    """A ModelNew file that makes the template's layers where the reference makes torch's; None where it makes none.

    Args:
        source: the problem's file.
    """
    future, reference = without_head(as_model_new(source))
    changed = _with_own_layers(reference)
    if changed == reference:
        return None
    templates = "\n\n\n".join(template(name).strip("\n") for name in _TEMPLATES)
    return f"{future}{without_unused(templates, names_in(changed))}\n\n\n{changed.strip(chr(10))}\n"


def _with_own_layers(source: str) -> str:
    """The text with ``nn.GRU``, ``torch.nn.GRU`` or an imported ``GRU`` renamed wherever they are read."""
    tree = parse(source)
    imported = {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "torch.nn"
        for alias in node.names
    }
    places = []
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="nn") | ast.Attribute(attr="nn"), attr=name):
                pass
            case ast.Name(id=local, ctx=ast.Load()):
                name = imported.get(local, "")
            case _:
                continue
        if name in _LAYERS and node.lineno == node.end_lineno:
            places.append(
                (node.lineno, node.col_offset, (node.end_col_offset or 0) - node.col_offset, f"Recurrent{name}")
            )
    return replaced(source, places)
