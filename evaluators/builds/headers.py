"""Light headers for torch: the same declarations, without those that a kernel does not use.

``torch/extension.h`` is long, and a kernel needs `at::Tensor`, a few operations and their bindings. A folder before
torch's own on the include path holds short headers of the same names. They include parts of torch: `Tensor`, the
operations that the file names, pybind's casters. Two heavy headers that every operation includes without need
(`ATen/Context.h`, and `ATen/DeviceGuard.h` for its lists) are almost empty there. A file that compiles was compiled
from torch's declarations. A missing declaration is an error, and then the file is compiled with torch's own headers.

A file is not tried where an omission could change a meaning without an error: `torch::tensor` (another dtype than
`at::tensor`'s), gradients, registrations, and files that test which headers exist.

For g++ the bindings to Python are precompiled as well. nvcc has no precompiled headers (`--pch` is NVRTC's).
"""

import contextlib
import functools
import os
import re
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kbevolve.evaluators.builds.build_request import digest
from kbevolve.evaluators.builds.sandboxed_compiler import build_directory, run

_GUARD = "#pragma once\n"
#: torch/extension.h includes these; without <cmath>, `abs` would be the one of integers.
_STANDARD = (
    *("algorithm", "array", "cassert", "cfloat", "climits", "cmath", "cstdint", "cstdio", "cstdlib", "cstring"),
    *("functional", "iostream", "limits", "map", "memory", "mutex", "numeric", "optional", "sstream", "stdexcept"),
    *("string", "tuple", "type_traits", "unordered_map", "utility", "vector"),
)
#: torch's names of fixed widths, and the types in `at`.
_DTYPES = {
    **{"kUInt8": "kByte", "kInt8": "kChar", "kInt16": "kShort", "kInt32": "kInt", "kInt64": "kLong"},
    **{"kFloat16": "kHalf", "kFloat32": "kFloat", "kFloat64": "kDouble"},
    **{"kU8": "kByte", "kI8": "kChar", "kI16": "kShort", "kI32": "kInt", "kI64": "kLong"},
    **{"kF16": "kHalf", "kF32": "kFloat", "kF64": "kDouble"},
}
_ENTRY = (
    _GUARD
    + "#ifdef KBEVOLVE_BINDINGS\n#include <kbevolve/bindings.h>\n#else\n#include <kbevolve/tensors.h>\n#endif\n"
    + "#include <kbevolve_named.h>\n"
)
#: The folder's files.
FILES = {
    "ATen/Context.h": _GUARD + "#include <c10/util/Exception.h>\n#include <c10/util/irange.h>\n",
    "ATen/DeviceGuard.h": _GUARD
    + "#include <ATen/core/Tensor.h>\n#include <c10/core/DeviceGuard.h>\n#include <optional>\n"
    + "namespace at {\ninline std::optional<Device> device_of(const Tensor& tensor) {\n"
    + "  return tensor.defined() ? std::optional<Device>(tensor.device()) : std::nullopt;\n}\n}\n",
    "kbevolve/tensors.h": _GUARD
    + "".join(f"#include <{name}>\n" for name in _STANDARD)
    + "#include <ATen/core/Tensor.h>\n#include <c10/core/TensorOptions.h>\n#include <c10/util/irange.h>\n"
    + "namespace torch {\nusing namespace at;\nusing std::nullopt;\nusing std::optional;\n"
    + "using Dtype = at::ScalarType;\n"
    + "".join(f"constexpr auto {name} = at::{kind};\n" for name, kind in _DTYPES.items())
    + "}\n",
    # A macro and no pragma, because this is the main file when it is precompiled.
    "kbevolve/bindings.h": "#ifndef KBEVOLVE_BOUND\n#define KBEVOLVE_BOUND\n#include <kbevolve/tensors.h>\n"
    + "#include <torch/csrc/utils/pybind.h>\n#include <torch/csrc/Exceptions.h>\n#endif\n",
    **dict.fromkeys(("torch/extension.h", "torch/types.h", "torch/all.h", "torch/torch.h", "ATen/ATen.h"), _ENTRY),
}
_BINDINGS = Path("kbevolve/bindings.h")

_INCLUDES_TORCH = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"](?:torch|ATen)/', re.MULTILINE)
_NOT_TRIED = re.compile(
    r"requires_grad|autograd|\btensor\s*\(\s*\{|(?:torch|at)\s*::\s*(?:tensor|jit|nn)\b|TORCH_LIBRARY|torch/script\.h"
    r"|torch/library\.h|__has_include|KBEVOLVE"
)
_BINDS = re.compile(r"PYBIND11|pybind11|\bpy\s*::|wrap_pybind_function")
_NAMED = re.compile(r"\b(?:torch|at)\s*::\s*([a-z_][a-z0-9_]*)")
_CALLED = re.compile(r"\b([a-z_][a-z0-9_]*)\s*\(")
_USING = re.compile(r"using\s+namespace\s+(?:torch|at)\b")

#: A header is precompiled for the flags of this many files: making it costs as much as it saves on three.
_WORTH_PRECOMPILING = 3
#: Precompiled headers at most, each for one set of flags, of 0.25 GB.
_MOST_PRECOMPILED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LightHeaders:
    """How one file is compiled with light headers."""

    #: First folder of the include path.
    folder: Path
    #: Text of ``kbevolve_named.h``: includes for the operations that the file names.
    named: str
    #: Whether it binds to Python.
    binds: bool

    def flags(self, *, cuda: bool) -> tuple[str, ...]:
        """Flags before all others; ``kbevolve_named.h`` is in ``../named``."""
        binding: tuple[str, ...] = ()
        if self.binds:
            # g++ uses a precompiled header only for the very first include.
            binding = ("-DKBEVOLVE_BINDINGS", *(() if cuda else ("-include", str(_BINDINGS))))
        return ("-I../named", f"-I{self.folder}", *binding)


class Headers:
    """The folder of light headers, and what was precompiled of them, in the cache for all processes."""

    def __init__(self, directory: Path) -> None:
        """`directory`: of the cache. Nothing is written before it is needed."""
        self._directory = directory
        self._uses: Counter[str] = Counter()
        self._lock = threading.Lock()

    def lighter(self, text: str) -> LightHeaders | None:
        """Light headers for this text; None when it includes nothing of torch, or must not be tried."""
        if not _INCLUDES_TORCH.search(text) or _NOT_TRIED.search(text) or not self._is_written():
            return None
        return LightHeaders(folder=self._folder, named=_named(text), binds=bool(_BINDS.search(text)))

    def due(self, command: Sequence[str]) -> str | None:
        """To be called for each file with bindings: a name when the header should now be precompiled for its flags."""
        name = precompiled_name(command)
        with self._lock:
            self._uses[name] += 1
            if self._uses[name] != _WORTH_PRECOMPILING:
                return None
        there = [file.name for file in self._precompiled.glob("*.gch")]
        return None if f"{name}.gch" in there or len(there) >= _MOST_PRECOMPILED else name

    def precompile(
        self, name: str, command: Sequence[str], *, seconds: float, nice: int, stop: threading.Event
    ) -> bool:
        """Precompile the bindings for a compiler command; whether there is such a header now.

        Args:
            name: of `due` or `precompiled_name`.
            command: of the C++ compiler, without a file.
            seconds: time limit; `nice` and `stop` as in `run`.
        """
        if not self._is_written():
            return False
        folder = self._folder
        words = (command[0], f"-I{folder}", *_shared(command[1:]), "-x", "c++-header", str(folder / _BINDINGS))
        with build_directory() as directory, contextlib.suppress(OSError):
            ran = run((*words, "-o", "object.o"), directory, seconds, (folder,), nice=nice, stop=stop)
            made = directory / "work" / "object.o"
            if ran.code == 0 and made.is_file():
                self._precompiled.mkdir(exist_ok=True)
                unfinished = self._precompiled / f".{name}-{os.getpid()}"
                shutil.move(made, unfinished)
                unfinished.rename(self._precompiled / f"{name}.gch")
                return True
        return False

    @functools.cached_property
    def _folder(self) -> Path:
        import torch

        # The name is part of a header's path, and so of the precompiled header.
        return self._directory / "headers" / digest(FILES, torch.__version__, str(Path(torch.__file__).parent))[:16]

    @property
    def _precompiled(self) -> Path:
        """The folder in which g++ finds a file that was made with its flags."""
        return self._folder / f"{_BINDINGS}.gch"

    def _is_written(self) -> bool:
        """Whether there is such a folder; it is written if possible."""
        folder = self._folder
        if folder.is_dir():
            return True
        with contextlib.suppress(OSError):
            folder.parent.mkdir(parents=True, exist_ok=True)
            unfinished = Path(tempfile.mkdtemp(prefix=".", dir=folder.parent))
            try:
                for name, text in FILES.items():
                    (unfinished / name).parent.mkdir(parents=True, exist_ok=True)
                    (unfinished / name).write_text(text)
                with contextlib.suppress(OSError):  # another process was first
                    unfinished.rename(folder)
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
            return True
        return False


def precompiled_name(command: Sequence[str]) -> str:
    """The name of the header that is precompiled for this C++ compiler command."""
    return digest(command[0], _shared(command[1:]))[:16]


def _shared(flags: Sequence[str]) -> list[str]:
    """Flags without the extension's name, which the headers do not use."""
    return [flag for flag in flags if not flag.startswith("-DTORCH_EXTENSION_NAME=")]


@functools.cache
def _operations() -> frozenset[str]:
    import torch

    folder = Path(torch.__file__).parent / "include" / "ATen" / "ops"
    return frozenset(file.stem for file in folder.glob("*.h"))


def _named(text: str) -> str:
    """Includes for the operations that a text names."""
    names = set(_NAMED.findall(text))
    if _USING.search(text):
        names |= set(_CALLED.findall(text))
    includes = [f"ATen/ops/{name}.h" for name in sorted(names & _operations())]
    includes += ["ATen/Dispatch.h"] if "AT_DISPATCH" in text or "AT_PRIVATE" in text else []
    includes += ["ATen/DeviceGuard.h"] if "device_of" in text or "DeviceGuard" in text else []
    return _GUARD + "".join(f"#include <{name}>\n" for name in includes)
