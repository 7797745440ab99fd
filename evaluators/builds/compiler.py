"""The commands of a build: torch's own, read from the file that torch would pass to ninja.

So the C++ standard, the include paths, the definitions and the libraries are those of the installed torch. Only the
start of Python, ninja and torch is saved.
"""

import functools
import hashlib
import inspect
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from kbevolve.evaluators.builds.build_request import BuildRequest, is_cuda
from kbevolve.evaluators.sandbox.build_protocol import BuilderUnavailable

#: Increased when the same request would be built or recorded in another way.
_RECIPE = 5
#: Dependency outputs in ``out``: of the compiler or the linker, and of the assembler, for ``.incbin``.
REPORTS = ("read", "assembled")
#: Variables that a product depends on; their values are part of its key.
_VARIABLES = ("CC", "CXX", "CPATH", "LIBRARY_PATH", "CUDAHOSTCXX")
_ASSIGNMENT = re.compile(r"^(\w+) = ?(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """The commands of one request, as words. They run in the folder ``work``; the products lie in ``out`` beside it."""

    cxx: tuple[str, ...]
    #: None without CUDA.
    nvcc: tuple[str, ...] | None
    #: Before the objects, and after them.
    link: tuple[str, ...]
    libraries: tuple[str, ...]

    def compile(self, file: str, *, first: Sequence[str] = ()) -> tuple[str, ...]:
        """Compile one source to ``out/object.o``, with reports about all that was read (`REPORTS`).

        `first`: flags before all others.
        """
        read, assembled = (f"../out/{name}" for name in REPORTS)
        output = ("-MD", "-MF", read, "-c", file, "-o", "../out/object.o")
        if is_cuda(file) and self.nvcc is not None:
            # ptxas' report about registers costs nothing and changes nothing.
            report = ("-Xcompiler", rf"-Wa\,--MD\,{assembled}") if _is_gnu() else ()
            return (self.nvcc[0], *first, *self.nvcc[1:], "-Xptxas", "-v", *report, *output)
        # -fpch-deps: what is in a precompiled header was read, too.
        report = ("-fpch-deps", f"-Wa,--MD,{assembled}") if _is_gnu() else ()
        return (self.cxx[0], *first, *self.cxx[1:], *report, *output)

    def link_into(self, product: str, objects: Sequence[str]) -> tuple[str, ...]:
        """Link objects to a library, with a report (`REPORTS`).

        Internal symbols and the build id are stripped, so that products which differ only in internal names have equal
        bytes (`evaluators.judging.binary_dedup`).
        """
        report = (f"-Wl,--dependency-file=../out/{REPORTS[0]}",) if _linker_reports() else ()
        return (*self.link, "-Wl,--strip-all,--build-id=none", *report, *objects, *self.libraries, "-o", product)

    @property
    def folders(self) -> tuple[str, ...]:
        """Absolute folders that they search for headers."""
        words = (*self.cxx, *(self.nvcc or ()))
        joined = (word[2:] for word in words if word.startswith(("-I/", "-L/")))
        return (*joined, *(folder for flag, folder in pairwise(words) if flag in ("-isystem", "-I", "-idirafter")))


def commands(request: BuildRequest) -> Commands:
    """The commands for a request; BuilderUnavailable when torch's builder refuses it or is unknown."""
    from torch.utils import cpp_extension

    architecture = request.architecture.replace(".", "")
    # torch adds no architecture when the flags name one.
    target = () if _names_architecture(request) else (f"-gencode=arch=compute_{architecture},code=sm_{architecture}",)
    inside = [f"-I{path}" for path in request.include_paths if not path.startswith("/")]
    given = {
        "name": request.name,
        "sources": [file for file, _ in request.sources],
        "extra_cflags": _quoted((*inside, *request.cflags)),
        "extra_cuda_cflags": _quoted((*inside, *request.cuda_cflags, *target)) if request.with_cuda else [],
        "extra_sycl_cflags": [],
        "extra_ldflags": _quoted(request.ldflags),
        "extra_include_paths": [path for path in request.include_paths if path.startswith("/")],
        "with_cuda": request.with_cuda,
        "with_sycl": False,
        "is_standalone": False,
        "verbose": False,
    }
    try:
        given["extra_ldflags"] = _call(cpp_extension._prepare_ldflags, given)
        with tempfile.TemporaryDirectory(prefix="kbevolve-recipe-") as folder:
            path = Path(folder) / "build.ninja"
            _call(cpp_extension._write_ninja_file_to_build_library, {**given, "path": str(path)})
            found = dict(_ASSIGNMENT.findall(path.read_text()))
        cxx, cflags, ldflags = (shlex.split(found[name]) for name in ("cxx", "cflags", "ldflags"))
        nvcc = [*shlex.split(found["nvcc"]), *shlex.split(found["cuda_cflags"])] if request.with_cuda else None
    except (OSError, ValueError) as error:
        raise BuilderUnavailable(f"torch's builder: {error}") from None
    except (AttributeError, KeyError, TypeError) as error:
        raise BuilderUnavailable(f"torch's extension builder is not as it was up to 2.13 ({error})") from None
    return Commands(
        cxx=(*cxx, *cflags), nvcc=None if nvcc is None else tuple(nvcc), link=tuple(cxx), libraries=tuple(ldflags)
    )


def toolchain() -> str:
    """A digest of torch, Python, the compilers and their variables, on which every product depends."""
    import torch
    from torch.utils import cpp_extension

    nvcc = Path(cpp_extension.CUDA_HOME or "/usr/local/cuda") / "bin" / "nvcc"
    parts = [
        *(str(_RECIPE), torch.__version__, sys.version, str(Path(torch.__file__).parent)),
        *(_output((word, "--version")) for word in (os.environ.get("CXX", "c++"), str(nvcc), "ld")),
        *(f"{name}={os.environ.get(name)}" for name in _VARIABLES),
        *(f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith("NVCC_")),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _quoted(words: Sequence[str]) -> list[str]:
    """As torch passes them to a shell."""
    return [shlex.quote(word) for word in words]


def _is_gnu() -> bool:
    """Whether the compilers of C++ are GCC, whose assembler reports what it reads."""
    named = {os.environ.get(name, default) for name, default in (("CXX", "c++"), ("CC", "gcc"), ("NVCC_CCBIN", "gcc"))}
    return not any("clang" in _output((*shlex.split(name), "--version")) for name in named if name)


def _linker_reports() -> bool:
    """Whether the linker can report what it reads (binutils 2.35, 2020)."""
    return "--dependency-file" in _output(("ld", "--help"))


def _names_architecture(request: BuildRequest) -> bool:
    return any("arch" in flag and "TORCH_EXTENSION_NAME" not in flag for flag in request.cuda_cflags)


def _call(function: Callable[..., Any], given: dict[str, Any]) -> Any:
    """Call a function of torch with those arguments that this version has."""
    return function(**{name: given[name] for name in inspect.signature(function).parameters})


@functools.cache
def _output(command: tuple[str, ...]) -> str:
    """What a compiler says of itself; asked once in a process, unlike the variables, which may change."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        return "none"
