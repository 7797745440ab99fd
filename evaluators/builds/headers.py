"""Lighter ways to include torch: the same declarations, without those that a kernel does not use.

``torch/extension.h`` is long, and a kernel needs `at::Tensor`, a few operations and the bindings of it. A folder looked
into before torch's own holds short headers of the same names. They include torch's own pieces: `Tensor`, the
operations that the file names, pybind's casters. Two heavy headers that every operation includes without need
(`ATen/Context.h`, and `ATen/DeviceGuard.h` for its lists) stand empty there. Whatever then compiles was compiled from
torch's declarations; whatever is missing is an error, and the file is compiled with torch's own headers.

Where leaving something out could change a meaning without an error, a file is not tried: `torch::tensor` (another dtype
than `at::tensor`'s), gradients, registrations, and files that ask which headers there are.

For g++ the part that binds to Python is precompiled as well. nvcc has no precompiled headers (its `--pch` is NVRTC's).
"""

import contextlib
import functools
import os
import re
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kbevolve.evaluators.builds.build_request import digest

_GUARD = "#pragma once\n"
#: torch/extension.h brings these in; `abs` without <cmath> would be the one of integers.
_STANDARD = (
    *("algorithm", "array", "cassert", "cfloat", "climits", "cmath", "cstdint", "cstdio", "cstdlib", "cstring"),
    *("functional", "iostream", "limits", "map", "memory", "mutex", "numeric", "optional", "sstream", "stdexcept"),
    *("string", "tuple", "type_traits", "unordered_map", "utility", "vector"),
)
#: Fixed widths under torch's names, as the type in `at`.
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
    # A macro and no pragma: this file may be a compiler's main file, when it is precompiled.
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

#: A header is precompiled for the flags that this many files came with: making one costs as much as it saves on three.
_WORTH_PRECOMPILING = 3
#: Sets of flags with a precompiled header each, of 0.25 GB.
_MOST_PRECOMPILED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LightHeaders:
    """How one file is compiled lightly."""

    #: Folder to look into first.
    folder: Path
    #: Text of ``kbevolve_named.h``: what the file names beyond tensors.
    named: str
    #: Whether it binds to Python.
    binds: bool

    def flags(self, *, cuda: bool) -> tuple[str, ...]:
        """What comes before all other flags; ``kbevolve_named.h`` lies in ``../named``."""
        binding: tuple[str, ...] = ()
        if self.binds:
            # g++ takes a precompiled header only for the very first include.
            binding = ("-DKBEVOLVE_BINDINGS", *(() if cuda else ("-include", str(_BINDINGS))))
        return ("-I../named", f"-I{self.folder}", *binding)


class Headers:
    """The folder of short headers, and what was precompiled of them; both lie in the cache, for all processes."""

    def __init__(self, directory: Path) -> None:
        """`directory`: of the cache; nothing is written before it is needed."""
        self._directory = directory
        self._asked: Counter[str] = Counter()
        self._lock = threading.Lock()

    def lighter(self, text: str) -> LightHeaders | None:
        """How to compile this text lightly; None when it includes nothing of torch, or must not be tried."""
        if not _INCLUDES_TORCH.search(text) or _NOT_TRIED.search(text):
            return None
        folder = self._folder()
        return (
            None if folder is None else LightHeaders(folder=folder, named=_named(text), binds=bool(_BINDS.search(text)))
        )

    def due(self, command: Sequence[str]) -> str | None:
        """Asked for each file that binds to Python: a name when the header should be precompiled for its flags now."""
        name = precompiled_name(command)
        with self._lock:
            self._asked[name] += 1
            if self._asked[name] != _WORTH_PRECOMPILING:
                return None
        folder = self._folder()
        if folder is None:
            return None
        there = [file.name for file in _precompiled(folder).glob("*.gch")]
        return None if f"{name}.gch" in there or len(there) >= _MOST_PRECOMPILED else name

    def precompile(self, name: str, command: Sequence[str], make: Callable[[Sequence[str], Path], Path | None]) -> bool:
        """Precompile the bindings for a compiler's words; whether there is such a header now.

        Args:
            name: of `due` or `precompiled_name`.
            command: the C++ compiler's words, without what says which file.
            make: runs words that end in ``-o object.o`` with a folder to look into; the file that came out.
        """
        folder = self._folder()
        if folder is None:
            return False
        words = (command[0], f"-I{folder}", *_shared(command[1:]), "-x", "c++-header", str(folder / _BINDINGS))
        made = make((*words, "-o", "object.o"), folder)
        if made is None:
            return False
        with contextlib.suppress(OSError):
            place = _precompiled(folder)
            place.mkdir(exist_ok=True)
            unfinished = place / f".{name}-{os.getpid()}"
            shutil.move(made, unfinished)
            unfinished.rename(place / f"{name}.gch")
            return True
        return False

    @functools.cached_property
    def _name(self) -> str:
        import torch

        # In the path of a header, so in the name of what is precompiled from it.
        return digest(FILES, torch.__version__, str(Path(torch.__file__).parent))[:16]

    def _folder(self) -> Path | None:
        """The folder, written if there was none; None where nothing can be written."""
        folder = self._directory / "headers" / self._name
        if folder.is_dir():
            return folder
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
            return folder
        return None


def precompiled_name(command: Sequence[str]) -> str:
    """Names what is precompiled for these words of a C++ compiler."""
    return digest(command[0], _shared(command[1:]))[:16]


def _precompiled(folder: Path) -> Path:
    """g++ takes the first file in there that was made with its flags."""
    return folder / f"{_BINDINGS}.gch"


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
