"""Light headers for torch: the same declarations, without those that a kernel does not use.

``torch/extension.h`` is long, and a kernel needs `at::Tensor`, a few operations and their bindings. A folder of each
build, before torch's own on the include path, holds short headers of the same names. They include parts of torch:
`Tensor`, the operations that the file names, pybind's casters. Two heavy headers that every operation includes without
need (`ATen/Context.h`, and `ATen/DeviceGuard.h` for its lists) are almost empty there. A file that compiles was
compiled from torch's declarations. A missing declaration is an error, and then the file is compiled with torch's own
headers.

A file is not tried where an omission could change a meaning without an error: `torch::tensor` (another dtype than
`at::tensor`'s), gradients, registrations, and files that test which headers exist.

For g++ the bindings to Python are precompiled as well: by the judge, from its own texts, and only for flags of code
generation, so that nothing of a kernel is in force. The file is checked by its digest before it is used. nvcc has no
precompiled headers (`--pch` is NVRTC's).
"""

import contextlib
import functools
import os
import re
import shutil
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kbevolve.evaluators.builds.build_request import BuildRequest, digest
from kbevolve.evaluators.builds.compiler import toolchain
from kbevolve.evaluators.builds.dependencies import DIGESTS, reads_of
from kbevolve.evaluators.builds.flags import is_plain
from kbevolve.evaluators.builds.sandboxed_compiler import build_directory, made, readable_paths, run
from kbevolve.evaluators.disk_cache import DiskCache

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
#: The folder's files, and the folder as the compilers see it.
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
_FOLDER = "../light"
_NAMED = "kbevolve_named.h"
_BINDINGS = "kbevolve/bindings.h"

_INCLUDES_TORCH = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"](?:torch|ATen)/', re.MULTILINE)
_NOT_TRIED = re.compile(
    r"requires_grad|autograd|\btensor\s*\(\s*\{|(?:torch|at)\s*::\s*(?:tensor|jit|nn)\b|TORCH_LIBRARY|torch/script\.h"
    r"|torch/library\.h|__has_include|KBEVOLVE"
)
#: A kernel's own headers in place of torch's.
_OWN = re.compile(r"(?:^|/)(?:torch|ATen|c10|kbevolve)/")
_BINDS = re.compile(r"PYBIND11|pybind11|\bpy\s*::|wrap_pybind_function")
_OPERATION = re.compile(r"\b(?:torch|at)\s*::\s*([a-z_][a-z0-9_]*)")
_CALLED = re.compile(r"\b([a-z_][a-z0-9_]*)\s*\(")
_USING = re.compile(r"using\s+namespace\s+(?:torch|at)\b")

#: A header is precompiled for the flags of this many files: making it costs as much as it saves on three.
_WORTH_PRECOMPILING = 3
#: Precompiled headers at most, each for one set of flags, of 0.25 GB; and the largest.
_MOST_PRECOMPILED = 4
_PRECOMPILED_BYTES = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class LightHeaders:
    """How one file is compiled with light headers."""

    #: Text of ``kbevolve_named.h``: includes for the operations that the file names.
    named: str
    #: Whether it binds to Python.
    binds: bool

    def flags(self, *, cuda: bool) -> tuple[str, ...]:
        """Flags before all others."""
        binding: tuple[str, ...] = ()
        if self.binds:
            # g++ uses a precompiled header only for the very first include.
            binding = ("-DKBEVOLVE_BINDINGS", *(() if cuda else ("-include", _BINDINGS)))
        return (f"-I{_FOLDER}", *binding)

    def write(self, directory: Path, precompiled: Path | None) -> None:
        """Write the folder into a build directory, with a link to what was precompiled."""
        _write(directory, {**FILES, _NAMED: self.named})
        if precompiled is not None:
            (directory / "light" / f"{_BINDINGS}.gch").symlink_to(precompiled)


def lighter(text: str, included: Sequence[tuple[str, str]] = ()) -> LightHeaders | None:
    """Light headers for this text; None when it includes nothing of torch, or must not be tried.

    `included`: paths and texts of other files that it may include.
    """
    whole = "\n".join((text, *(other for _, other in included)))
    if not _INCLUDES_TORCH.search(text) or _NOT_TRIED.search(whole) or any(_OWN.search(path) for path, _ in included):
        return None
    return LightHeaders(named=_named(whole), binds=bool(_BINDS.search(whole)))


class Headers:
    """What was precompiled of the light headers, in the cache for all processes."""

    def __init__(self, directory: Path) -> None:
        """`directory`: of the cache. Nothing is written before it is needed."""
        self._directory = directory / "headers"
        self._records = DiskCache(directory)
        self._uses: Counter[str] = Counter()
        self._lock = threading.Lock()

    def precompiled(self, command: Sequence[str]) -> Path | None:
        """What was precompiled for a C++ compiler command; None for nothing, or what is damaged or outdated."""
        name = precompiled_name(command)
        path = self._directory / f"{name}.gch"
        if not path.exists():
            return None
        match self._records.get("precompiled", name):
            case {"digest": str(digest), "reads": dict(reads)} if digest == DIGESTS.of(str(path), whole=True):
                if DIGESTS.unchanged(reads, {}):
                    return path
        path.unlink(missing_ok=True)
        return None

    def due(self, command: Sequence[str]) -> str | None:
        """To be called for each file with bindings: a name when the header should now be precompiled for its flags."""
        name = precompiled_name(command)
        with self._lock:
            self._uses[name] += 1
            is_due = self._uses[name] == _WORTH_PRECOMPILING
        return name if is_due and self.precompiled(command) is None else None

    def precompile(
        self, name: str, command: Sequence[str], *, seconds: float, nice: int, stop: threading.Event
    ) -> bool:
        """Precompile the bindings for a compiler command; whether there is such a header now.

        Args:
            name: of `due` or `precompiled_name`.
            command: of the C++ compiler, without a file; `is_precompilable` for its request.
            seconds: time limit; `nice` and `stop` as in `run`.
        """
        report = "../out/read"
        words = (command[0], f"-I{_FOLDER}", *_shared(command[1:]), "-x", "c++-header", f"{_FOLDER}/{_BINDINGS}")
        began = time.time_ns()
        with build_directory() as directory, contextlib.suppress(OSError):
            _write(directory, {**FILES, _NAMED: _GUARD})
            ran = run(
                (*words, "-MD", "-MF", report, "-o", "../out/header"),
                directory,
                seconds,
                nice=nice,
                file_bytes=_PRECOMPILED_BYTES,
                stop=stop,
            )
            rules, header = made(directory, "read"), directory / "out" / "header"
            if ran.code or rules is None or not header.is_file() or header.is_symlink():
                return False
            reads = reads_of(directory, [rules], files={}, began=began, readable=readable_paths())
            if reads is None:
                return False
            self._directory.mkdir(parents=True, exist_ok=True)
            unfinished = self._directory / f".{name}-{os.getpid()}"
            shutil.move(header, unfinished)
            digest = DIGESTS.of(str(unfinished), whole=True)
            unfinished.rename(self._directory / f"{name}.gch")
            self._records.put("precompiled", name, {"digest": digest, "reads": dict(reads)})
            self._remove_oldest()
            return True
        return False

    def _remove_oldest(self) -> None:
        found = sorted(self._directory.glob("*.gch"), key=lambda path: path.stat().st_mtime)
        for path in found[:-_MOST_PRECOMPILED]:
            path.unlink(missing_ok=True)


def is_precompilable(request: BuildRequest) -> bool:
    """Whether only flags of code generation are in force for its C++ sources."""
    return not request.include_paths and all(map(is_plain, request.cflags))


def precompiled_name(command: Sequence[str]) -> str:
    """The name of the header that is precompiled for this C++ compiler command."""
    return digest(toolchain(), FILES, command[0], _shared(command[1:]))[:32]


def _shared(flags: Sequence[str]) -> list[str]:
    """Flags without the extension's name, which the headers do not use."""
    return [flag for flag in flags if not flag.startswith("-DTORCH_EXTENSION_NAME=")]


def _write(directory: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = directory / "light" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@functools.cache
def _operations() -> frozenset[str]:
    import torch

    folder = Path(torch.__file__).parent / "include" / "ATen" / "ops"
    return frozenset(file.stem for file in folder.glob("*.h"))


def _named(text: str) -> str:
    """Includes for the operations that a text names."""
    names = set(_OPERATION.findall(text))
    if _USING.search(text):
        names |= set(_CALLED.findall(text))
    includes = [f"ATen/ops/{name}.h" for name in sorted(names & _operations())]
    includes += ["ATen/Dispatch.h"] if "AT_DISPATCH" in text or "AT_PRIVATE" in text else []
    includes += ["ATen/DeviceGuard.h"] if "device_of" in text or "DeviceGuard" in text else []
    return _GUARD + "".join(f"#include <{name}>\n" for name in includes)
