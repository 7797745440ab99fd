"""Functions of templates for a GPU that need none: sizes, and sources in CUDA C++."""

import ast
import functools
import math
from typing import Any

from kbevolve.configs.templates import template


def template_functions(*names: str, **given: Any) -> dict[str, Any]:
    """The functions of these templates by their names, which see `given` as the module's other names."""
    scope = {"math": math, "functools": functools, **given}
    tree = ast.parse("\n".join(map(template, names)))
    exec("\n".join(ast.unparse(node) for node in tree.body if isinstance(node, ast.FunctionDef)), scope)
    return scope


def cuda_text(name: str) -> str:
    """The CUDA C++ in the string of a template's file."""
    text = template(name)
    start = text.index("#define")
    return text[start : text.index('"""', start)]
