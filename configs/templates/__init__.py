"""Parametric code that starting kernels are put together from. Nothing here imports a template: each is text.

For fp32-accurate results on the tensor cores of sm_90, in Triton, from operands split into pairs of fp16:
`split_products.py` has products of any strides, and `split_convolution.py`, which needs it, convolutions.
"""

from pathlib import Path

__all__ = ["template"]


def template(name: str) -> str:
    """The text of a template, by the name of its file without suffix."""
    return (Path(__file__).parent / f"{name}.py").read_text(encoding="utf-8")
