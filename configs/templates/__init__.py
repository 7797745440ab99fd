"""Parametric code that starting kernels are put together from. Nothing here imports a template: each is text.

`split_products.py`: fp32-accurate products on the tensor cores of sm_90, for products of any strides, in Triton.
"""

from pathlib import Path

__all__ = ["template"]


def template(name: str) -> str:
    """The text of a template, by the name of its file without suffix."""
    return (Path(__file__).parent / f"{name}.py").read_text(encoding="utf-8")
