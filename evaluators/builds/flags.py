"""Which flags a kernel may give to the C++ compiler, nvcc and the linker: an allow-list.

Other flags name programs (``-wrapper``, ``-B``, ``-specs``, ``-fplugin``, ``-ccbin``), files to read or to write
(``-include``, ``-o``, ``-MF``, ``@file``) or scripts of the linker, or change what a source is (``-x``).
"""

import re
import shlex
from collections.abc import Callable, Sequence
from enum import StrEnum

from kbevolve.evaluators.sandbox.build_protocol import BuildRefused

#: nvcc passes words to a shell, which interprets these even inside double quotes.
_SHELL = re.compile(r"[`$]")
_VALUE = r"(?:=[\w.+-]+)?"

#: What follows -f and -fno-: names, and beginnings of the names of optimisations.
_F = (
    r"(?:tree|loop|unroll|unswitch|peel|split|inline|ipa|ira|sched|schedule|modulo|gcse|if-conversion|reorder|align|vect"
    r"|simd|branch-count-reg|devirtualize|prefetch|strict|delete|graphite|finite|signed|rounding|trapping|associative|reciprocal"
    r"|isolate|var-tracking|template|constexpr|diagnostics-(?:color|show)|stack-(?:protector|clash|reuse))[a-z0-9-]*"
    r"|(?:fast|unsafe)-math(?:-optimizations)?|math-errno|fp-contract|fp-int-builtin-inexact|excess-precision"
    r"|signaling-nans|cx-(?:limited-range|fortran-rules)|single-precision-constant|float-store"
    r"|openmp(?:-simd)?|lto|fat-lto-objects|pic|PIC|plt|visibility(?:-inlines-hidden|-ms-compat)?|omit-frame-pointer"
    r"|exceptions|rtti|wrapv(?:-pointer)?|trapv|common|builtin(?:-[a-z0-9_]+)?|permissive|concepts|coroutines|char8_t|cf-protection|slp-vectorize|variable-expansion-in-unroller"
    r"|(?:un)?signed-char|short-enums|threadsafe-statics|semantic-interposition|merge(?:-all)?-constants"
    r"|keep-inline-functions|function-sections|data-sections|early-inlining|indirect-inlining|partial-inlining"
    r"|code-hoisting|crossjumping|caller-saves|combine-stack-adjustments|compare-elim|cprop-registers|dce|dse"
    r"|defer-pop|expensive-optimizations|forward-propagate|guess-branch-probability|hoist-adjacent-loads|ivopts"
    r"|jump-tables|lifetime-dse|live-range-shrinkage|lra-remat|move-loop-(?:invariants|stores)|no-threadsafe-statics"
    r"|optimize-(?:sibling-calls|strlen)|peephole2?|predictive-commoning|ree|rename-registers|rerun-cse-after-loop"
    r"|section-anchors|selective-scheduling2?|shrink-wrap(?:-separate)?|ssa-(?:backprop|phiopt)|store-merging"
    r"|thread-jumps|toplevel-reorder|tracer|version-loops-for-strides|web|aggressive-loop-optimizations"
    r"|allow-store-data-races|cse-follow-jumps|non-call-exceptions|asynchronous-unwind-tables|unwind-tables|max-errors"
    r"|abi-version|new-ttp-matching|ident|gnu-unique|verbose-asm|trivial-auto-var-init|zero-initialized-in-bss"
)
#: What follows -m and -mno-: instruction sets and how code is generated for them.
_M = (
    r"arch|tune|cpu|fpu|float-abi|abi|cmodel|fpmath|recip|prefer-vector-width|veclibabi|vzeroupper|64|red-zone|daz-ftz"
    r"|(?:avx|sse)[a-z0-9.-]*|ssse3|fma4?|f16c|bmi2?|lzcnt|popcnt|aes|v?pclmul(?:qdq)?|vaes|sha|gfni|amx-[a-z0-9]+"
    r"|movbe|movdir[a-z0-9]+|adx|rdrnd|rdseed|xsave[a-z]*|prefetchwt1|prfchw|clflushopt|clwb|cx16|sahf|fsgsbase"
    r"|omit-leaf-frame-pointer|align-[a-z-]+|stackrealign|unaligned-access|(?:move|store)-max|branch-cost|outline-atomics|branch-protection|sve[a-z-]*"
)
#: Flags of code generation, messages and debug information, with which headers may be precompiled, too.
_PLAIN = re.compile(
    r"-O(?:[0-3sgz]|fast)?|-std=(?:c|gnu)\+\+[0-9][0-9a-z]|-W[a-z][a-z0-9+=-]*|-w|-pedantic(?:-errors)?|-pthread|-pipe"
    rf"|-g(?:[0-3]|gdb[0-3]?|dwarf(?:-[2-5])?|line-tables-only)?|-f(?:no-)?(?:{_F}){_VALUE}|-m(?:no-)?(?:{_M}){_VALUE}|--param=[a-z0-9-]+=[0-9]+"
)
_MACRO = re.compile(r"-D[A-Za-z_][^\\]*|-U\w+")
_LIBRARY = re.compile(
    r"-l(?:c|m|dl|rt|pthread|util|atomic|mvec|gfortran|xsmm|stdc\+\+|gcc|gcc_s|gomp|omp|iomp5|tbb|numa|cuda|cudart(?:_static)?|cudadevrt"
    r"|(?:cublas|cudnn|cufft|curand|cusolver|cusparse|cutensor|npp|nvrtc|nvJitLink|nvjpeg|nvToolsExt|nvptxcompiler)"
    r"[\w-]*|cupti|nccl|nvidia-ml|culibos|(?:openblas|mkl_)\w*|c?blas|blis|lapacke?|dnnl|sleef|fftw3f?"
    r"|torch(?:_cpu|_cuda|_python)?|c10(?:_cuda)?|python3\.\d+)"
)
_LINKING = re.compile(r"-shared|-s|-rdynamic|-static-lib(?:gcc|stdc\+\+)")
#: Parts of -Wl,… between its commas.
_LINKER_PART = re.compile(
    r"-O[0-2]|--(?:no-)?(?:as-needed|whole-archive|gc-sections|allow-shlib-undefined|export-dynamic|undefined)"
    r"|-z|now|relro|noexecstack|defs|nodelete|-s|-S|--strip-(?:all|debug)|-E|-Bsymbolic(?:-functions)?"
    r"|--exclude-libs(?:=ALL)?|ALL|--(?:start|end)-group|--(?:en|dis)able-new-dtags|--(?:build-id|hash-style)=\w+"
)

_BOOLEAN = "(?:true|false)"
_TARGET = r"(?:sm|compute|lto)_[0-9]+[af]?"
#: nvcc's flags after their dashes, with the values that they take.
_NVCC_VALUES = {
    **dict.fromkeys(("std",), r"c\+\+[0-9]{2}"),
    **dict.fromkeys(("O", "optimize", "dopt"), "[0-3]|on"),
    **dict.fromkeys(("arch", "gpu-architecture"), rf"{_TARGET}|native|all|all-major"),
    **dict.fromkeys(("code", "gpu-code"), rf"\[?{_TARGET}(?:,{_TARGET})*\]?"),
    **dict.fromkeys(("gencode", "generate-code"), rf"arch={_TARGET},code=\[?{_TARGET}(?:,{_TARGET})*\]?"),
    **dict.fromkeys(("maxrregcount",), "[0-9]{1,3}"),
    **dict.fromkeys(("t", "threads", "split-compile"), "[0-8]"),
    **dict.fromkeys(("default-stream",), "legacy|null|per-thread"),
    **dict.fromkeys(("diag-suppress", "diag-warn", "diag-error"), "[0-9,]+"),
    **dict.fromkeys(("ftz", "prec-div", "prec-sqrt", "fmad"), _BOOLEAN),
    **dict.fromkeys(("rdc", "relocatable-device-code", "device-stack-protector"), _BOOLEAN),
    **dict.fromkeys(("m", "machine"), "64"),
    **dict.fromkeys(("cudart",), "none|shared|static"),
    **dict.fromkeys(("Ofast-compile", "Ofc", "compress-mode"), "[a-z0-9]+"),
    **dict.fromkeys(("Werror",), "[a-z,-]+"),
    **dict.fromkeys(("ftemplate-depth", "ftemplate-backtrace-limit"), "[0-9]+"),
}
_NVCC_BARE = re.compile(
    r"(?:use_fast_math|(?:generate-)?line-?info|G|device-debug|g|debug|(?:expt-)?(?:relaxed-constexpr|extended-lambda)"
    r"|restrict|extra-device-vectorization|res(?:ource)?-usage|w|disable-warnings|W(?:no-)?[a-z][a-z-]*|keep|v|verbose"
    rf"|allow-unsupported-compiler|forward-unknown-to-host-compiler|source-in-ptx|m64)(?:={_BOOLEAN})?"
)
_NVCC_PASSED_ON = {
    **dict.fromkeys(
        ("Xptxas", "ptxas-options"),
        re.compile(
            r"-?-(?:v|verbose|w|O[0-3]|opt-level=[0-3]|warn-[a-z-]+|allow-expensive-optimizations|fmad|lineinfo"
            r"|suppress-[a-z-]+|maxrregcount|register-usage-level|disable-optimizer-constants|sp-bounds-check|Werror"
            r"|(?:def-(?:load|store)-cache|[df][ls]cm|force-(?:load|store)-cache))(?:=[a-z0-9]+)?"
        ),
    ),
    **dict.fromkeys(
        ("Xcudafe", "cudafe-options"),
        re.compile(r"--(?:diag_\w+=[\w,]+|display_error_number|no_display_error_number|promote_warnings)"),
    ),
    **dict.fromkeys(("Xfatbin", "fatbin-options"), re.compile(r"-?-(?:compress-all|compress=\w+|no-compress)")),
}
_TO_HOST = ("Xcompiler", "compiler-options")

_FOLDER_FLAGS = ("-isystem", "-iquote", "-idirafter", "-I", "-L")


class Tool(StrEnum):
    """A program that a kernel's flags reach."""

    CXX = "the C++ compiler"
    NVCC = "nvcc"
    LINKER = "the linker"


_COMMON = "-O*, -std=*, -g*, -W* (no -Wl, -Wa, -Wp), -D, -U, -I of a folder of the system or of the kernel"
_ALLOWED = {
    Tool.CXX: f"{_COMMON}, and the usual -f* and -m* of optimisation and instruction sets",
    Tool.NVCC: f"{_COMMON}, -arch, -gencode, -maxrregcount, -lineinfo, --use_fast_math, --expt-*, -Xptxas and "
    "-Xcompiler with the usual values, and the like",
    Tool.LINKER: "-l of the libraries of C, C++, CUDA, torch, MKL and OpenBLAS, -L of a folder of the system, "
    "-fopenmp, -pthread, and -Wl with -rpath, -z, --as-needed and the like",
}


def checked(flags: Sequence[str], tool: Tool, readable: Callable[[str], bool]) -> tuple[str, ...]:
    """The flags as words, as a shell would split them; `readable`: whether a folder may be named.

    Raises:
        BuildRefused: a flag is not allowed; the message names it and what is allowed.
    """
    try:
        words = [word for flag in flags for word in shlex.split(flag)]
    except ValueError as error:
        raise BuildRefused(f"a flag with an open quote: {error}") from None
    rest = iter(words)
    result: list[str] = []
    for word in rest:
        pair = [word, *([next(rest, "")] if _takes_another(word, tool) else [])]
        text = " ".join(pair)
        if _SHELL.search(text) or not text.isprintable() or not _is_allowed(pair, tool, readable):
            raise BuildRefused(f"the flag {text[:200]!r} is not allowed for {tool}: {_ALLOWED[tool]} are")
        result += pair
    return tuple(result)


def is_plain(word: str) -> bool:
    """Whether it is a flag of code generation, messages or debug information only."""
    return _PLAIN.fullmatch(word) is not None


def _takes_another(word: str, tool: Tool) -> bool:
    """Whether the next word is this flag's value."""
    if word in (*_FOLDER_FLAGS, "-D", "-U", "-l", "--param"):
        return True
    name = _nvcc_name(word)
    return tool is Tool.NVCC and name is not None and name in (*_NVCC_VALUES, *_NVCC_PASSED_ON, *_TO_HOST)


def _nvcc_name(word: str) -> str | None:
    found = re.fullmatch(r"--?(\w[\w-]*)", word)
    return found[1] if found else None


def _is_allowed(pair: Sequence[str], tool: Tool, readable: Callable[[str], bool]) -> bool:
    joined = ("=" if pair[0] == "--param" else "").join(pair)
    folder = next((flag for flag in _FOLDER_FLAGS if joined.startswith(flag)), None)
    if folder is not None:
        path = joined.removeprefix(folder).removeprefix("=")
        return "," not in path and not path.startswith("-") and readable(path)
    if any(flags.fullmatch(joined) for flags in (_PLAIN, _MACRO, _LIBRARY, _LINKING)):
        return True
    if tool is Tool.LINKER:
        return joined.startswith("-Wl,") and _may_link(joined, readable)
    return tool is Tool.NVCC and _is_nvcc(pair, readable)


def _may_link(word: str, readable: Callable[[str], bool]) -> bool:
    parts = re.sub(r"-rpath(?:-link)?,", "-rpath=", word).split(",")[1:]
    return all(
        readable(part.removeprefix("-rpath=")) if part.startswith("-rpath=") else _LINKER_PART.fullmatch(part)
        for part in parts
    )


def _is_nvcc(pair: Sequence[str], readable: Callable[[str], bool]) -> bool:
    name, _, value = "=".join(pair).partition("=")
    if not name.startswith("-"):
        return False
    short = name[2 if name.startswith("--") else 1 :]
    if short in _TO_HOST:
        return bool(value) and all(_is_allowed([part], Tool.CXX, readable) for part in re.split("[, ]+", value))
    if short in _NVCC_PASSED_ON:
        return bool(value) and all(_NVCC_PASSED_ON[short].fullmatch(part) for part in re.split("[, ]+", value))
    if short in _NVCC_VALUES:
        return re.fullmatch(_NVCC_VALUES[short], value) is not None
    return _NVCC_BARE.fullmatch("=".join(pair)[len(name) - len(short) :]) is not None
