"""Which names of torch and other libraries compute, and how much: a product is heavy, a ReLU light, a view nothing.

The names alone decide: the lint does not import torch. A function of torch that is not known to be free counts as
light, so that the lint notices a new operation rather than overlooks it.
"""

import re
from functools import lru_cache

from kbevolve.evaluators.lint.tables import PATTERNS, table

#: `names.yaml` explains its tables.
HEAVY = table("heavy")
COMMON = table("common")
PRODUCES = table("produces")
DESCRIBES = table("describes")
_NEUTRAL = table("parts_of_torch")
KERNEL_LIBRARIES = table("kernel_libraries")
_CPP_TYPES = table("types_in_cpp")
_NUMPY_HEAVY, _NUMPY_LIGHT = table("numpy_heavy"), table("numpy_light")
_FREE_NAME = re.compile(r"(is|get|set|has)_|__|(u|q|qu|b)?(int|float|bits|complex)\d\w*$|bit$")
_OPERATIONS = re.compile(rf"torch\.{PATTERNS['operation_spaces'].pattern}\.(\w+)")
_DECOMPOSITIONS = re.compile(r"(?:torch|numpy)\.(?:linalg|fft|_C\._linalg|_C\._fft)\.(\w+)")
MODULE_CLASS = re.compile(r"torch\.nn\.(?:modules\.\w+\.)?([A-Z]\w*)(?:\.(forward|__call__|_call_impl|_conv_forward))?")
_CPP_TORCH = re.compile(
    r"(?:at|torch)(?:::(?:native|_ops|cpu|cuda|compositeimplicitautograd|compositeexplicitautograd|meta))*::([a-z_]\w*)(?:::\w+)*"
)
_CPP_PARTS = re.compile(r"(?:at|torch)::(nn::functional|linalg|fft|special|sparse|nn)::(\w+)")


@lru_cache(maxsize=4096)
def weight_of(name: str) -> str:
    """How much a dotted name computes when it is called: "heavy", "light", or "" for nothing.

    For a class of torch.nn: how much a call of its instances computes.
    """
    root, _, rest = name.partition(".")
    if root in KERNEL_LIBRARIES or name == "operator.matmul":
        return "heavy"
    if found := _DECOMPOSITIONS.match(name):
        return "light" if PATTERNS["light_linalg"].fullmatch(found[1]) else "heavy"
    if root == "numpy":
        parts = rest.split(".")
        if parts[-1] in HEAVY | _NUMPY_HEAVY:
            return "heavy"
        return "" if _NUMPY_LIGHT.isdisjoint(parts) else "light"
    if root != "torch" or not rest:
        return ""
    if found := MODULE_CLASS.fullmatch(name):
        if PATTERNS["free_modules"].fullmatch(found[1]):
            return ""
        return "heavy" if PATTERNS["heavy_modules"].fullmatch(found[1]) else "light"
    if found := _OPERATIONS.match(name):
        return operation_weight(found[1])
    first, _, member = rest.partition(".")
    if first in _NEUTRAL or member not in {"", "default", "out"}:
        return ""
    if first[0].isupper() or first.startswith(("are_", "_")):
        return "heavy" if is_heavy(first) else ""
    return operation_weight(first)


def operation_weight(name: str) -> str:
    """The same for the bare name of an operation, as in ``torch.NAME``, ``tensor.NAME`` or ``at::NAME``."""
    if is_heavy(name):
        return "heavy"
    free = name in PRODUCES or name in DESCRIBES or _FREE_NAME.match(name)
    return "" if free and not PATTERNS["arithmetic"].fullmatch(name) else "light"


def is_heavy(name: str) -> bool:
    """Whether the bare name of an operation is that of a heavy one, in place or not."""
    return name in HEAVY or name.rstrip("_") in HEAVY or bool(PATTERNS["heavy"].match(name))


def gives_tensor(name: str) -> bool:
    """Whether a call of this dotted name gives a tensor, or several."""
    last = name.rpartition(".")[2]
    if found := MODULE_CLASS.fullmatch(name):
        return found[2] is not None or found[1] in {"Parameter", "Buffer"}
    return name.startswith("torch.") and (
        bool(weight_of(name)) or (last in PRODUCES and not name.startswith("torch.cuda."))
    )


@lru_cache(maxsize=8192)
def weight_in_cpp(name: str) -> str:
    """How much a name of a library computes when it is called: "heavy", "light", or "" for nothing."""
    if PATTERNS["cpp_libraries"].fullmatch(name):
        return "heavy"
    if part := _CPP_PARTS.match(name):
        return weight_of(f"torch.{part[1].replace('::', '.')}.{part[2]}")
    found = _CPP_TORCH.match(name)
    if found is None or found[1] in _CPP_TYPES or re.match(r"k[A-Z]", found[1]):
        return ""
    if PATTERNS["cpp_plain"].match(name):
        return "heavy" if is_heavy(found[1]) else ""
    return operation_weight(found[1])
