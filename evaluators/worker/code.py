"""What shows in PTX, as short words: of the Triton kernels of this process, and for our builders of CUDA C++.

The words are the values of `archive.records.Trait`, which this program cannot import. What a worker tells of itself is
untrusted, and moves a kernel to another niche at most.

PTX rather than the machine code behind it: it says plainly what SASS leaves open (two floats or one double, packed
arithmetic or a constant that is moved, a shuffle that was asked for or one that ptxas makes of an atomic).
"""

import re
import sys
from collections.abc import Mapping

from kbevolve.evaluators.worker.resources import compiled_kernels

#: Kernels that are looked into at most, each form that an autotuner tried being one; and characters of each.
_MOST_KERNELS = 64
_MOST_TEXT = 4 << 20

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
#: An instruction with all that it is qualified by. A text of megabytes holds some hundred different ones.
_INSTRUCTION = re.compile(r"(?<![\w.%$])[a-z]\w*(?:\.[\w:]+)+")
_MARKS = {
    # Of memory that all blocks see; arguments, spilled registers and shared memory move as vectors for other reasons.
    "vector access": r"(?:ld|st)(?:\.(?!shared|local|param|const)[\w:]+)*\.v[248]\b",
    "shared memory": r"(?:ld|st|atom|red|cp\.async)\..*\bshared\b|(?:ld|st)matrix\.",
    "asynchronous copy": r"cp\.(?:reduce\.)?async\.(?!(?:bulk\.)?(?:commit|wait)_|mbarrier)"
    r"|prefetchu?\.(?:global\.)?L[12]\b",
    # Not .cg and .cv, by which blocks tell one another something; not evict_last, which is the opposite.
    "streaming": r"(?:ld|st)\..*\b(?:cs|lu|L[12]::evict_first|L1::no_allocate)\b|createpolicy\..*::evict_first\b",
    "warp shuffles": r"(?:shfl|redux)\.",
    "packed arithmetic": r"(?!(?:cvt|mov|atom|red|multimem)\.).*\.(?:b?f16x2|f32x2|[su]16x2)\b|dp[24]a\.",
    "matrix units": r"(?:(?:wg|w)mma\.|tcgen05\.)?mma(?:_async)?\.",
    # Shared memory is seen by one block alone.
    "atomics": r"(?:atom|red)\.(?!.*\bshared\b)|cp\.reduce\.async\.bulk\.(?:tensor\.\w+\.)?global\b",
}
_PATTERNS = {word: re.compile(mark) for word, mark in _MARKS.items()}


def shown_in(ptx: str) -> list[str]:
    """What shows in a text of PTX, in an order that is always the same."""
    instructions = set(_INSTRUCTION.findall(_COMMENT.sub("", ptx)))
    return [word for word, pattern in _PATTERNS.items() if any(map(pattern.match, instructions))]


def shown_by_triton() -> list[str] | None:
    """What shows in the candidate's Triton kernels, all forms together; None where none was compiled.

    An autotuner's forms count whether they won or not: which of them wins is noise.
    """
    found: set[str] = set()
    looked = False
    for number, kernel in enumerate(compiled_kernels(sys.modules.get("candidate"))):
        texts = getattr(kernel, "asm", None)
        text = texts.get("ptx") if isinstance(texts, Mapping) else None
        if number == _MOST_KERNELS or not isinstance(text, str):
            return None  # half of them would be another kernel
        looked = True
        found.update(shown_in(text[:_MOST_TEXT]))
    return [word for word in _PATTERNS if word in found] if looked else None
