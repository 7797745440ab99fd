"""Traits of the machine code of a C++ kernel, from a disassembly: x86-64 in AT&T syntax.

Only a kernel's arithmetic counts. A library also holds torch's and pybind's code, which copies structures 32 bytes at a
time and counts references with locked instructions; neither is a trait.
"""

import re

from kbevolve.archive.records import Trait
from kbevolve.evaluators.builds.traits import Traits

#: Packed floats of any width, without conversions and logic, which scalar code uses too.
_FLOATS = (
    r"v?(?:add|sub|mul|div|min|max|sqrt|addsub|hadd|hsub|dp|(?:rcp|rsqrt)(?:14)?|round|rndscale"
    r"|fn?m(?:add|sub|addsub|subadd)(?:132|213|231))p[sdh]\b"
)
#: Packed integers, counted in wide registers only: a compiler computes single sums in an xmm.
_INTEGERS = r"vp(?:add|sub|mul|madd|max|min|abs|avg|sad)\w+"
_MOVES = r"v?(?:mov[au]p[sd]|movntp[sd]|movdq[au]\d*|lddqu|gather\w+)\b"
#: A memory operand that is neither on the stack nor a constant.
_DATA = r"[^\n]*[ ,](?!-0x[0-9a-f]+\(%rbp\))(?:-?0x[0-9a-f]+)?\((?!%r[si]p\b)"

_PACKED = re.compile(rf"\t(?:{_FLOATS}|{_INTEGERS}[^\n]*%[yz]mm)")
_ACCESS = re.compile(rf"\t(?:{_MOVES}|{_FLOATS}|{_INTEGERS}){_DATA}")
_PREFETCH = re.compile(r"\tprefetch")
_PAST_CACHES = re.compile(r"\tv?movnt")
#: AMX, and products of bfloat16 pairs, which no compiler generates by itself.
_MATRIX = re.compile(r"\t(?:tdp|tileload|vdpbf16ps)")
_LOCKED = re.compile(r"\tlock ")
#: pybind's loops over arguments are vectorised. No other function is ignored: those of torch and std may hold the
#: kernel's own lambdas.
_BINDINGS = re.compile(r"\s*[0-9a-f]+ <_ZNK?8pybind11")
#: GCC's name of the part of a function that OpenMP's threads run. Locks elsewhere count references.
_PARALLEL = re.compile(r"^[0-9a-f]+ <[^>\n]*\._omp_fn\.", re.MULTILINE)


def x86_traits(listing: str) -> Traits:
    """The traits of the output of ``objdump -d --no-show-raw-insn``, in the order of the enum."""
    found: set[Trait] = set()
    for function in listing.split("\n\n"):
        if "\t" in function and not _BINDINGS.match(function):
            found |= _traits_in(function)
    return tuple(trait for trait in Trait if trait in found)


def _traits_in(function: str) -> set[Trait]:
    packed = bool(_PACKED.search(function))
    shown = {
        Trait.VECTOR_ACCESS: packed and _ACCESS.search(function),
        Trait.ASYNC_COPY: _PREFETCH.search(function),
        Trait.STREAMING: _PAST_CACHES.search(function),
        Trait.PACKED_ARITHMETIC: packed,
        Trait.MATRIX_UNITS: _MATRIX.search(function),
        Trait.ATOMICS: _LOCKED.search(function) and _PARALLEL.search(function),
    }
    return {trait for trait, there in shown.items() if there}
