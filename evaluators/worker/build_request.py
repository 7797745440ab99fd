"""A build by torch's extension builder as plain values, which another process can carry out.

A request holds texts and flags. A build that needs more (a header beside a source, an environment that the kernel
changed) has no request, and this process compiles it as torch would.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

#: Most bytes of all sources: a kernel has two files of some kilobytes.
MOST_BYTES = 2 << 20

#: Variables that torch's builder and the compilers obey.
_VARIABLES = (
    *("CXX", "CC", "NVCC", "PYTORCH_NVCC", "CUDA_HOME", "CUDA_PATH", "CUDA_INC_PATH", "CUDNN_HOME", "CUDNN_PATH"),
    *("CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN"),
    *("GCC_EXEC_PREFIX", "COMPILER_PATH"),
)
_QUOTED_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)


def compiler_variables() -> dict[str, str | None]:
    """The present values of the variables that compilers obey."""
    return {name: os.environ.get(name) for name in _VARIABLES}


def request_of(build: Mapping[str, Any]) -> dict[str, Any] | None:
    """The request for a build; None when it needs more than a request holds. The judge checks the rest.

    Args:
        build: the arguments of torch's `_write_ninja_file_and_build_library`, by name.
    """
    if build.get("with_sycl") or build.get("extra_sycl_cflags") or build.get("is_standalone"):
        return None
    try:
        paths = [Path(path) for path in build["sources"]]
        flags = {
            "cflags": _flags(build.get("extra_cflags")),
            "cuda_cflags": _flags(build.get("extra_cuda_cflags")),
            "ldflags": _flags(build.get("extra_ldflags")),
            "include_paths": [os.path.abspath(path) for path in _flags(build.get("extra_include_paths"))],
        }
        if sum(path.stat().st_size for path in paths) > MOST_BYTES:
            return None
        sources = [[path.name, path.read_text(encoding="utf-8")] for path in paths]
    except (OSError, ValueError, TypeError, KeyError):
        return None
    if any(_is_private(path) for path in flags["include_paths"]) or _need_other_files(paths, sources):
        return None
    return {
        "name": str(build["name"]),
        "sources": sources,
        **flags,
        "with_cuda": bool(build.get("with_cuda")),
    }


def _flags(given: Any) -> list[str]:
    if isinstance(given, str):
        raise ValueError("torch takes a list")  # and would take the letters of a string for flags
    return [str(flag) for flag in given or ()]


def _need_other_files(paths: Sequence[Path], sources: Sequence[Sequence[str]]) -> bool:
    """Whether a source includes a file beside it that is not one of the sources."""
    names = {name for name, _ in sources}
    return any(
        included not in names and (path.parent / included).exists()
        for path, (_, text) in zip(paths, sources, strict=True)
        for included in _QUOTED_INCLUDE.findall(text)
    )


def _is_private(path: str) -> bool:
    """Whether the path is in this process's own directories, which a builder cannot read."""
    own = [os.environ.get(name) for name in ("HOME", "TMPDIR")] + [os.getcwd()]
    return any(Path(path).resolve().is_relative_to(Path(folder).resolve()) for folder in own if folder)
