"""How much of a compiled kernel did not fit into registers, which the profiler does not report.

Triton keeps that with each compiled kernel; for CUDA C++ `cuobjdump` reads it from the library.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

#: Triton counts spilled registers, of 4 bytes each.
_REGISTER_BYTES = 4
#: Seconds that `cuobjdump` may take for one library. It takes milliseconds for a candidate's own.
_DUMP_SECONDS = 10.0
#: Most libraries that are read; a candidate builds one or two.
_MOST_LIBRARIES = 4

#: The profiler's name of a kernel, registers a thread -> bytes a thread.
Bytes = dict[tuple[str, Any], int]

_FUNCTION = re.compile(r"Function (?P<name>\S+?):\s+REG:(?P<registers>\d+) STACK:(?P<stack>\d+)")


def triton_spills() -> Bytes:
    """Spilled bytes of the compiled Triton kernels of the candidate's file."""
    found: Bytes = {}
    for kernel in compiled_kernels(sys.modules.get("candidate")):
        name, registers, spills = (getattr(kernel, field, None) for field in ("name", "n_regs", "n_spills"))
        if isinstance(name, str) and isinstance(spills, int):
            found[name, registers] = max(found.get((name, registers), 0), spills * _REGISTER_BYTES)
    return found


def compiled_kernels(module: ModuleType | None) -> Iterator[Any]:
    """The compiled forms of all Triton kernels of a module."""
    for value in list(vars(module).values()) if module is not None else ():
        yield from _compiled(value)


def stack_bytes(names: Iterable[str]) -> Bytes:
    """Stack bytes of kernels in the candidate's libraries: spilled registers, and arrays in local memory."""
    dumped = [found for library in _built_libraries() for found in _FUNCTION.finditer(_dump(library))]
    found: Bytes = {}
    for name in names if dumped else ():
        for function in dumped:
            if _means(function["name"], name):
                key = (name, int(function["registers"]))
                found[key] = max(found.get(key, 0), int(function["stack"]))
    return found


def _compiled(value: Any) -> Iterator[Any]:
    """Compiled forms of a Triton function, through its autotuner and heuristics; none for anything else."""
    for _ in range(4):
        caches = getattr(value, "device_caches", None)
        if isinstance(caches, dict):
            for cache in list(caches.values()):
                kernels = cache[0] if isinstance(cache, tuple) else cache
                yield from list(kernels.values()) if isinstance(kernels, dict) else ()
            return
        value = getattr(value, "fn", None)


def _built_libraries() -> list[Path]:
    """Libraries of this process in its own directories, which the candidate built."""
    own = tuple(str(Path(path).resolve()) + "/" for path in {os.environ.get("TMPDIR"), os.getcwd()} if path)
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return []
    mapped = {line.split(maxsplit=5)[-1] for line in maps.splitlines() if line.endswith(".so")}
    return [Path(path) for path in sorted(mapped) if path.startswith(own)][:_MOST_LIBRARIES]


def _dump(library: Path) -> str:
    program = shutil.which("cuobjdump") or shutil.which("cuobjdump", path=_toolkit_path())
    if program is None:
        return ""
    try:
        done = subprocess.run(
            [program, "--dump-resource-usage", str(library)],
            capture_output=True,
            text=True,
            timeout=_DUMP_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


def _toolkit_path() -> str:
    """Other folders that may hold `cuobjdump`: the toolkit's, and Triton's, which has its own."""
    roots = [os.environ.get("CUDA_HOME", "/usr/local/cuda")]
    triton = getattr(sys.modules.get("triton"), "__file__", None)
    if triton:
        roots.append(str(Path(triton).parent / "backends" / "nvidia"))
    return os.pathsep.join(f"{root}/bin" for root in roots)


def _means(mangled: str, name: str) -> bool:
    """Whether a symbol is the kernel with this profiler's name: it contains the last part of it after its length."""
    plain = re.sub(r"<.*|\(.*", "", name.replace("(anonymous namespace)::", "")).split("::")[-1].split()
    return bool(plain) and (mangled == plain[-1] or f"{len(plain[-1])}{plain[-1]}" in mangled)
