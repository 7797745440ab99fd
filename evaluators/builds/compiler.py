"""The commands that build an order: torch's own, read from the file that torch would have handed to ninja.

So the standard, the include paths, the definitions and the libraries are those of the installed version of torch,
whichever it is. Only the starting of Python, ninja and torch is left out.
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
from pathlib import Path
from typing import Any

from kbevolve.configs.errors import EvaluatorError
from kbevolve.evaluators.builds.build_request import BuildRefused, BuildRequest, is_cuda
from kbevolve.evaluators.sandbox.environment import cuda_architecture

#: Raised when the same order would be built otherwise than before.
_RECIPE = 3
#: What decides about a product beside the order. Its values belong to the name of the product.
_VARIABLES = ("CC", "CXX", "CPATH", "LIBRARY_PATH", "CUDAHOSTCXX")
_ASSIGNMENT = re.compile(r"^(\w+) = ?(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """What is run for one order, as words. Each ends where ``-c FILE -o OBJECT`` or the objects are to follow."""

    cxx: tuple[str, ...]
    #: None without CUDA.
    nvcc: tuple[str, ...] | None
    #: Before the objects, and after them.
    link: tuple[str, ...]
    libraries: tuple[str, ...]

    def compile(self, file: str, *, first: Sequence[str] = ()) -> tuple[str, ...]:
        """Compile one source to ``object.o``; `first`: flags before all others."""
        if is_cuda(file) and self.nvcc is not None:
            # What ptxas tells about registers costs nothing and changes nothing.
            return (self.nvcc[0], *first, *self.nvcc[1:], "-Xptxas", "-v", "-c", file, "-o", "object.o")
        return (self.cxx[0], *first, *self.cxx[1:], "-c", file, "-o", "object.o")

    def link_into(self, product: str, objects: Sequence[str]) -> tuple[str, ...]:
        """Link objects to a library or program.

        Without the symbols that nobody outside asks for, and without a number of this build: what is equal but for
        names inside then has equal bytes (`evaluators.builds.code`).
        """
        return (*self.link, "-Wl,--strip-all,--build-id=none", *objects, *self.libraries, "-o", product)


def commands(order: BuildRequest) -> Commands:
    """The commands for an order.

    Raises:
        BuildRefused: torch's builder refuses it.
        EvaluatorError: this torch has another builder than we know.
    """
    from torch.utils import cpp_extension

    architecture = order.architecture.replace(".", "")
    # torch adds nothing about architectures where one is named.
    target = () if _names_architecture(order) else (f"-gencode=arch=compute_{architecture},code=sm_{architecture}",)
    given = {
        "name": order.name,
        "sources": [file for file, _ in order.sources],
        "extra_cflags": list(order.cflags),
        "extra_cuda_cflags": [*order.cuda_cflags, *target] if order.with_cuda else list(order.cuda_cflags),
        "extra_sycl_cflags": [],
        "extra_ldflags": list(order.ldflags),
        "extra_include_paths": list(order.include_paths),
        "with_cuda": order.with_cuda,
        "with_sycl": False,
        "is_standalone": order.standalone,
        "verbose": False,
    }
    try:
        given["extra_ldflags"] = _call(cpp_extension._prepare_ldflags, given)
        with tempfile.TemporaryDirectory(prefix="kbevolve-recipe-") as folder:
            path = Path(folder) / "build.ninja"
            _call(cpp_extension._write_ninja_file_to_build_library, {**given, "path": str(path)})
            found = dict(_ASSIGNMENT.findall(path.read_text()))
        cxx, cflags, ldflags = (shlex.split(found[name]) for name in ("cxx", "cflags", "ldflags"))
        nvcc = [*shlex.split(found["nvcc"]), *shlex.split(found["cuda_cflags"])] if order.with_cuda else None
    except (OSError, ValueError) as error:
        raise BuildRefused(f"torch's builder: {error}") from None
    except (AttributeError, KeyError, TypeError) as error:
        raise EvaluatorError(
            f"torch's extension builder is not as it was up to 2.13 ({error}); use another version of torch"
        ) from None
    return Commands(
        cxx=(*cxx, *cflags), nvcc=None if nvcc is None else tuple(nvcc), link=tuple(cxx), libraries=tuple(ldflags)
    )


@functools.cache
def toolchain() -> str:
    """Names all that decides what comes out beside the order: torch, Python, compilers. Asked for once a process."""
    import torch
    from torch.utils import cpp_extension

    nvcc = Path(cpp_extension.CUDA_HOME or "/usr/local/cuda") / "bin" / "nvcc"
    parts = [
        *(str(_RECIPE), torch.__version__, sys.version, str(Path(torch.__file__).parent)),
        *(_version([word, "--version"]) for word in (os.environ.get("CXX", "c++"), str(nvcc), "ld")),
        *(f"{name}={os.environ.get(name)}" for name in _VARIABLES),
        *(f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith("NVCC_")),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def architecture(device_type: str, index: int) -> str:
    """What a device's kernels are built for: "9.0a", …; "" for a CPU."""
    return cuda_architecture(index) if device_type == "cuda" else ""


def _names_architecture(order: BuildRequest) -> bool:
    return any("arch" in flag and "TORCH_EXTENSION_NAME" not in flag for flag in order.cuda_cflags)


def _call(function: Callable[..., Any], given: dict[str, Any]) -> Any:
    """Call a function of torch with those of the arguments that it has in this version."""
    return function(**{name: given[name] for name in inspect.signature(function).parameters})


def _version(command: Sequence[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        return "none"
