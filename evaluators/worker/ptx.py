"""Traits of PTX as short words: of the Triton kernels of this process, and of CUDA C++ for the builders.

The words are the values of `archive.records.Trait`, which this program cannot import. A worker's report is untrusted,
and can at most move its kernel to another niche.

PTX is clear where SASS is ambiguous: two floats or one double, packed arithmetic or a moved constant, a shuffle in the
source or one that ptxas makes of an atomic.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

#: Most kernels that are read, where each form that an autotuner tried counts as one; and characters of each.
_MOST_KERNELS = 64
_MOST_TEXT = 4 << 20

_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
#: An instruction with its qualifiers. A text of megabytes holds some hundred different ones.
_INSTRUCTION = re.compile(r"(?<![\w.%$])[a-z]\w*(?:\.[\w:]+)+")
_MARKS = {
    # Global memory only: arguments, spilled registers and shared memory are accessed as vectors for other reasons.
    "vector access": r"(?:ld|st)(?:\.(?!shared|local|param|const)[\w:]+)*\.v[248]\b",
    "shared memory": r"(?:ld|st|atom|red|cp\.async)\..*\bshared\b|(?:ld|st)matrix\.",
    "asynchronous copy": r"cp\.(?:reduce\.)?async\.(?!(?:bulk\.)?(?:commit|wait)_|mbarrier)"
    r"|prefetchu?\.(?:global\.)?L[12]\b",
    # Not .cg and .cv, with which blocks communicate; not evict_last, which is the opposite.
    "streaming": r"(?:ld|st)\..*\b(?:cs|lu|L[12]::evict_first|L1::no_allocate)\b|createpolicy\..*::evict_first\b",
    "warp shuffles": r"(?:shfl|redux)\.",
    "packed arithmetic": r"(?!(?:cvt|mov|atom|red|multimem)\.).*\.(?:b?f16x2|f32x2|[su]16x2)\b|dp[24]a\.",
    "matrix units": r"(?:(?:wg|w)mma\.|tcgen05\.)?mma(?:_async)?\.",
    # Not in shared memory, which belongs to one block.
    "atomics": r"(?:atom|red)\.(?!.*\bshared\b)|cp\.reduce\.async\.bulk\.(?:tensor\.\w+\.)?global\b",
}
_PATTERNS = {word: re.compile(mark) for word, mark in _MARKS.items()}


def ptx_traits(ptx: str) -> list[str]:
    """The traits of a text of PTX, always in the same order."""
    instructions = set(_INSTRUCTION.findall(_COMMENT.sub("", ptx)))
    return [word for word, pattern in _PATTERNS.items() if any(map(pattern.match, instructions))]


def triton_traits() -> list[str] | None:
    """The traits of the candidate's Triton kernels together; None where none was compiled, or not all can be read.

    All forms that an autotuner tried count, because which of them wins is noise.
    """
    found: set[str] = set()
    any_compiled = False
    for number, kernel in enumerate(compiled_kernels(sys.modules.get("candidate"))):
        texts = getattr(kernel, "asm", None)
        text = texts.get("ptx") if isinstance(texts, Mapping) else None
        if number == _MOST_KERNELS or not isinstance(text, str):
            return None  # traits of a part could be another kernel's
        any_compiled = True
        found.update(ptx_traits(text[:_MOST_TEXT]))
    return [word for word in _PATTERNS if word in found] if any_compiled else None


def compiled_kernels(module: ModuleType | None) -> Iterator[Any]:
    """The compiled forms of all Triton kernels of a module."""
    for value in list(vars(module).values()) if module is not None else ():
        yield from _compiled(value)


def _compiled(value: Any) -> Iterator[Any]:
    """Compiled forms of a Triton function, through its autotuner and heuristics; none for anything else."""
    for _ in range(4):
        caches = getattr(value, "device_caches", None)
        if isinstance(caches, dict):
            for cache in list(caches.values()):
                kernels = cache[0] if isinstance(cache, tuple) else cache
                yield from list(kernels.values()) if isinstance(kernels, dict) else ()
            return
        value = getattr(value, "fn", None)
