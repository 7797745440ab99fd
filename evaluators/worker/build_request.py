"""What torch's extension builder was asked to build, as a plain order that somebody else can carry out.

An order holds texts and flags and nothing of this process. What cannot be told in full (a header beside a source, an
environment that the kernel changed) is no order, and is compiled here as torch would.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

#: Sources, and bytes of all of them: a kernel has two files of some kilobytes.
MOST_SOURCES = 16
MOST_BYTES = 2 << 20
#: Flags in one list, and characters of one.
MOST_FLAGS = 200
MOST_FLAG = 4096

#: Variables that torch's builder and the compilers obey.
_VARIABLES = (
    *("CXX", "CC", "NVCC", "PYTORCH_NVCC", "CUDA_HOME", "CUDA_PATH", "CUDA_INC_PATH", "CUDNN_HOME", "CUDNN_PATH"),
    *("CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN"),
    *("GCC_EXEC_PREFIX", "COMPILER_PATH"),
)
_QUOTED_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)


def variables() -> dict[str, str | None]:
    """What the environment says to compilers now."""
    return {name: os.environ.get(name) for name in _VARIABLES}


def order_of(asked: Mapping[str, Any]) -> dict[str, Any] | None:
    """The order, None when this build cannot be told in one.

    Args:
        asked: the arguments of torch's `_write_ninja_file_and_build_library`, by name.
    """
    if asked.get("with_sycl") or asked.get("extra_sycl_cflags"):
        return None
    try:
        paths = [Path(path) for path in asked["sources"]]
        flags = {
            "cflags": _flags(asked.get("extra_cflags")),
            "cuda_cflags": _flags(asked.get("extra_cuda_cflags")),
            "ldflags": _flags(asked.get("extra_ldflags")),
            "include_paths": [os.path.abspath(path) for path in _flags(asked.get("extra_include_paths"))],
        }
        sources = _read(paths)
    except (OSError, ValueError, TypeError, KeyError):
        return None
    if any(_is_private(path) for path in flags["include_paths"]) or _need_company(paths, sources):
        return None
    return {
        "name": str(asked["name"]),
        "sources": sources,
        **flags,
        "with_cuda": bool(asked.get("with_cuda")),
        "standalone": bool(asked.get("is_standalone")),
    }


def _flags(given: Any) -> list[str]:
    if isinstance(given, str):
        raise ValueError("torch takes a list")  # and would take a string's letters for flags
    flags = [str(flag) for flag in given or ()]
    if len(flags) > MOST_FLAGS or any(len(flag) > MOST_FLAG for flag in flags):
        raise ValueError("more flags than an order holds")
    return flags


def _read(paths: Sequence[Path]) -> list[list[str]]:
    """File names and texts.

    Raises:
        ValueError: too many or too long, or two of one name.
    """
    if len(paths) > MOST_SOURCES or sum(path.stat().st_size for path in paths) > MOST_BYTES:
        raise ValueError("more sources than an order holds")
    if len({path.name for path in paths}) < len(paths):
        raise ValueError("two sources of one name")
    return [[path.name, path.read_text(encoding="utf-8")] for path in paths]


def _need_company(paths: Sequence[Path], sources: Sequence[Sequence[str]]) -> bool:
    """Whether a source includes a file beside it that is no source itself."""
    names = {name for name, _ in sources}
    return any(
        included not in names and (path.parent / included).exists()
        for path, (_, text) in zip(paths, sources, strict=True)
        for included in _QUOTED_INCLUDE.findall(text)
    )


def _is_private(path: str) -> bool:
    """Whether it lies in this process's own folders, which nobody else compiles from."""
    own = [os.environ.get(name) for name in ("HOME", "TMPDIR")] + [os.getcwd()]
    return any(Path(path).resolve().is_relative_to(Path(folder).resolve()) for folder in own if folder)
