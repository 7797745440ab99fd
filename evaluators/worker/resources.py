"""What the profiler does not tell of a compiled kernel: how much of it did not fit into registers.

Triton keeps that beside each compiled kernel; of CUDA C++ the object file tells it, to `cuobjdump`.
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
#: Seconds that `cuobjdump` may take for one library: milliseconds for a candidate's own.
_DUMP_SECONDS = 10.0
#: Libraries looked into at most; a candidate builds one or two.
_MOST_LIBRARIES = 4

#: Name as the profiler tells it, registers a thread -> bytes a thread.
Bytes = dict[tuple[str, Any], int]

_FUNCTION = re.compile(r"Function (?P<name>\S+?):\s+REG:(?P<registers>\d+) STACK:(?P<stack>\d+)")


def triton_spills() -> Bytes:
    """Spilled bytes of the Triton kernels that the candidate's file holds and that were compiled."""
    found: Bytes = {}
    for kernel in compiled_kernels(sys.modules.get("candidate")):
        name, registers, spills = (getattr(kernel, field, None) for field in ("name", "n_regs", "n_spills"))
        if isinstance(name, str) and isinstance(spills, int):
            found[name, registers] = max(found.get((name, registers), 0), spills * _REGISTER_BYTES)
    return found


def compiled_kernels(module: ModuleType | None) -> Iterator[Any]:
    """The compiled forms of all Triton kernels that a module holds."""
    for value in list(vars(module).values()) if module is not None else ():
        yield from _compiled(value)


def stack_bytes(names: Iterable[str]) -> Bytes:
    """Stack bytes of kernels in the libraries that were built here: what was spilled, and arrays kept in memory."""
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
    """Libraries in this process that lie in its own directories, so were built by the candidate."""
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
        said = subprocess.run(
            [program, "--dump-resource-usage", str(library)],
            capture_output=True,
            text=True,
            timeout=_DUMP_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return said.stdout


def _toolkit_path() -> str:
    """Where `cuobjdump` may be beside the PATH: the toolkit, and Triton, which brings its own."""
    roots = [os.environ.get("CUDA_HOME", "/usr/local/cuda")]
    triton = getattr(sys.modules.get("triton"), "__file__", None)
    if triton:
        roots.append(str(Path(triton).parent / "backends" / "nvidia"))
    return os.pathsep.join(f"{root}/bin" for root in roots)


def _means(mangled: str, name: str) -> bool:
    """Whether a symbol is the kernel that the profiler calls so: its last name stands in there, behind its length."""
    plain = re.sub(r"<.*|\(.*", "", name.replace("(anonymous namespace)::", "")).split("::")[-1].split()
    return bool(plain) and (mangled == plain[-1] or f"{len(plain[-1])}{plain[-1]}" in mangled)
