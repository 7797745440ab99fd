"""What this machine offers to kernels: interpreters, compilers, devices, sandboxing. Looks, and changes nothing."""

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from kbevolve.evaluators.sandbox import bubblewrap, launch
from kbevolve.evaluators.worker import landlock


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One thing that was looked for."""

    #: What it is, e.g. "g++".
    name: str
    found: bool
    #: What was found, one line.
    detail: str = ""
    #: What to do when it is missing; "" when nothing can or need be done.
    remedy: str = ""


def probe() -> list[Diagnostic]:
    """Everything, in the order in which a person would set a machine up."""
    return [look() for look in _LOOKS]


def working_backends(findings: list[Diagnostic]) -> dict[str, bool]:
    """Which kinds of kernels can be built and run here."""
    found = {finding.name: finding.found for finding in findings}
    gpu = found["torch"] and found["GPU"]
    return {
        "torch": found["torch"],
        "cpp": found["torch"] and found["C++ compiler"] and found["ninja"],
        "triton": gpu and found["triton"],
        "cuda": gpu and found["nvcc"] and found["C++ compiler"] and found["ninja"],
    }


def _python() -> Diagnostic:
    return Diagnostic(name="Python", found=True, detail=f"{platform.python_version()} on {platform.platform()}")


def _torch() -> Diagnostic:
    if importlib.util.find_spec("torch") is None:
        return Diagnostic(name="torch", found=False, remedy="pip install torch")
    try:
        import torch
    except Exception as error:
        return Diagnostic(name="torch", found=False, detail=str(error)[:200], remedy="reinstall torch")
    return Diagnostic(
        name="torch", found=True, detail=f"{torch.__version__}, CUDA {torch.version.cuda or 'not built in'}"
    )


def _gpu() -> Diagnostic:
    remedy = "without one kernels are judged on the CPU"
    try:
        import torch

        if torch.cuda.is_available():
            from kbevolve.evaluators.device.devices import find_device

            count = torch.cuda.device_count()
            more = f" (and {count - 1} more)" if count > 1 else ""
            return Diagnostic(name="GPU", found=True, detail=find_device("cuda").description + more)
        if shutil.which("nvidia-smi") and torch.version.cuda is None:
            return Diagnostic(
                name="GPU", found=False, detail="torch is built without CUDA", remedy="install torch for CUDA"
            )
        return Diagnostic(name="GPU", found=False, detail="torch sees no CUDA device", remedy=remedy)
    except Exception as error:
        return Diagnostic(name="GPU", found=False, detail=str(error).splitlines()[0][:200], remedy=remedy)


def _cpu() -> Diagnostic:
    from kbevolve.evaluators.device.devices import cpu_model

    return Diagnostic(name="CPU", found=True, detail=f"{cpu_model()}, {len(os.sched_getaffinity(0))} usable cores")


def _compiler() -> Diagnostic:
    return _program(
        "C++ compiler", os.environ.get("CXX", "c++"), "apt install g++ (or set CXX); Triton and torch work without"
    )


def _nvcc() -> Diagnostic:
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    inside = Path(home) / "bin" / "nvcc"
    program = str(inside) if inside.exists() else "nvcc"
    return _program("nvcc", program, "install the CUDA toolkit or set CUDA_HOME; needed for CUDA C++ only", line=-2)


def _ninja() -> Diagnostic:
    return _program("ninja", "ninja", "pip install ninja")


def _triton() -> Diagnostic:
    try:
        return Diagnostic(name="triton", found=True, detail=version("triton"))
    except PackageNotFoundError:
        return Diagnostic(name="triton", found=False, remedy="pip install triton (it comes with torch for CUDA)")


def _landlock() -> Diagnostic:
    found, applied = landlock.version(), landlock.usable()
    if applied:
        return Diagnostic(name="Landlock", found=True, detail=f"version {found} of its interface")
    detail = f"version {found} of its interface is too old" if found else ""
    return Diagnostic(
        name="Landlock",
        found=False,
        detail=detail,
        remedy="a kernel of Linux 5.19 or newer with Landlock switched on; without it kernels may read your files",
    )


def _bubblewrap() -> Diagnostic:
    why_not = bubblewrap.obstacle("cpu")
    if why_not is None:
        return _program("bubblewrap", "bwrap", "")
    return Diagnostic(
        name="bubblewrap", found=False, detail=why_not, remedy="apt install bubblewrap; Landlock works without"
    )


def _sandbox() -> Diagnostic:
    """What a worker really reaches, tried in one."""
    try:
        from kbevolve.evaluators.device.devices import find_device

        level = launch.confinement_level(find_device("auto"))
    except Exception as error:
        return Diagnostic(
            name="sandbox", found=False, detail=str(error).splitlines()[0][:200], remedy="see the lines above"
        )
    lacking = [name for name in ("landlock", "seccomp") if name not in level]
    return Diagnostic(
        name="sandbox",
        found=not lacking,
        detail=level,
        remedy=f"a worker runs without {' and '.join(lacking)}: judge only kernels that you would run yourself",
    )


def _shared_memory() -> Diagnostic:
    try:
        os.close(os.memfd_create("kbevolve-probe"))
    except OSError as error:
        return Diagnostic(name="shared memory", found=False, detail=str(error), remedy="allow memfd_create")
    return Diagnostic(name="shared memory", found=True, detail=f"memfd; {_memory_words()}")


def _memory_words() -> str:
    page = os.sysconf("SC_PAGE_SIZE")
    return f"{page * os.sysconf('SC_PHYS_PAGES') / 1e9:.0f} GB of memory"


def _program(name: str, program: str, remedy: str, *, line: int = 0) -> Diagnostic:
    """A program that says its version; `line` is which line of that is shown."""
    path = shutil.which(program) or shutil.which(program, path=str(Path(sys.executable).parent))
    if path is None:
        return Diagnostic(name=name, found=False, detail=f"no {program} on the PATH", remedy=remedy)
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return Diagnostic(name=name, found=False, detail=f"{path}: {error}", remedy=remedy)
    lines = said.strip().splitlines() or [""]
    return Diagnostic(name=name, found=True, detail=f"{lines[line if -len(lines) <= line else 0]} ({path})")


_LOOKS: tuple[Callable[[], Diagnostic], ...] = (
    _python,
    _torch,
    _gpu,
    _cpu,
    _compiler,
    _ninja,
    _nvcc,
    _triton,
    _landlock,
    _bubblewrap,
    _sandbox,
    _shared_memory,
)
