"""Small kernel files, and pairs of them that look alike: one hides something, its twin is honest."""

import textwrap
from dataclasses import dataclass


def model(*, top: str = "", init: str = "", forward: str = "return x", arguments: str = "x, y") -> str:
    """A ModelNew file with these statements."""
    parts = [
        "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n",
        textwrap.dedent(top).strip() + "\n",
        "\nclass ModelNew(nn.Module):",
        "    def __init__(self):\n        super().__init__()",
        textwrap.indent(textwrap.dedent(init).strip(), " " * 8),
        f"\n    def forward(self, {arguments}):",
        textwrap.indent(textwrap.dedent(forward).strip(), " " * 8) + "\n",
    ]
    return "\n".join(part for part in parts if part.strip())


def extension(code: str, *, forward: str = "return EXT.run(x, y)", top: str = "", keywords: str = "") -> str:
    """A ModelNew file whose kernel is this C++ or CUDA."""
    return model(
        top=f"""
from torch.utils.cpp_extension import load_inline
{textwrap.dedent(top)}
SOURCE = r'''
{textwrap.dedent(code)}
'''
EXT = load_inline(name="ext", cpp_sources=SOURCE, functions=["run"]{keywords})
""",
        forward=forward,
    )


TRITON = """
import triton
import triton.language as tl


@triton.jit
def copy_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """What must be seen in a kernel, and must not be seen in one that looks like it."""

    #: A tag that the first has and the second has not.
    tag: str
    trick: str
    honest: str
    #: Whether the trick is refused, by the rule of the same name.
    refused: bool = False


MATMUL = "return torch.mm(x, y)"
