"""What this machine offers to kernels: interpreters, compilers, devices, guards. Changes nothing."""

import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from kbevolve.evaluators.device.devices import cpu_model, find_device, package_version
from kbevolve.evaluators.sandbox import bubblewrap
from kbevolve.evaluators.sandbox.worker import Worker
from kbevolve.evaluators.worker import landlock


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """The result of one check."""

    #: What was checked, e.g. "C++ compiler".
    name: str
    #: Whether it is there and works.
    found: bool
    #: What was found, one line.
    detail: str = ""
    #: What to do when it is missing; "" when nothing can or need be done.
    remedy: str = ""


def diagnose() -> list[Diagnostic]:
    """All checks, in the order in which a user sets a machine up."""
    compiler = os.environ.get("CXX", "c++")
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    nvcc = Path(home) / "bin" / "nvcc"
    return [
        Diagnostic("Python", True, f"{platform.python_version()} on {platform.platform()}"),
        _torch(),
        _gpu(),
        Diagnostic("CPU", True, f"{cpu_model()}, {len(os.sched_getaffinity(0))} usable cores"),
        _program("C++ compiler", compiler, "apt install g++ (or set CXX); Triton and torch work without"),
        _program("ninja", "ninja", "pip install ninja"),
        _program(
            "nvcc",
            str(nvcc) if nvcc.exists() else "nvcc",
            "install the CUDA toolkit or set CUDA_HOME; needed for CUDA C++ only",
            line=-2,
        ),
        _triton(),
        _landlock(),
        _bubblewrap(),
        (sandbox := _sandbox()),
        readable(sandbox.detail if "limits" in sandbox.detail else ""),
        _shared_memory(),
    ]


def working_backends(diagnostics: list[Diagnostic]) -> dict[str, bool]:
    """Which kinds of kernels can be built and run here."""
    found = {diagnostic.name: diagnostic.found for diagnostic in diagnostics}
    gpu = found["torch"] and found["GPU"]
    return {
        "torch": found["torch"],
        "cpp": found["torch"] and found["C++ compiler"] and found["ninja"],
        "triton": gpu and found["triton"],
        "cuda": gpu and found["nvcc"] and found["C++ compiler"] and found["ninja"],
    }


def _torch() -> Diagnostic:
    try:
        import torch
    except Exception as error:
        return Diagnostic("torch", False, _first_line(error), "pip install torch, or reinstall it")
    return Diagnostic("torch", True, f"{torch.__version__}, CUDA {torch.version.cuda or 'not built in'}")


def _gpu() -> Diagnostic:
    remedy = "without one, kernels are judged on the CPU"
    try:
        import torch

        if torch.cuda.is_available():
            count = torch.cuda.device_count()
            more = f" (and {count - 1} more)" if count > 1 else ""
            return Diagnostic("GPU", True, find_device("cuda").description + more)
        if shutil.which("nvidia-smi") and torch.version.cuda is None:
            return Diagnostic("GPU", False, "torch is built without CUDA", "install torch for CUDA")
        return Diagnostic("GPU", False, "torch sees no CUDA device", remedy)
    except Exception as error:
        return Diagnostic("GPU", False, _first_line(error), remedy)


def _triton() -> Diagnostic:
    found = package_version("triton")
    remedy = "only for GPUs; it comes with torch for CUDA (else: pip install triton)"
    return Diagnostic("triton", bool(found), found, "" if found else remedy)


def _landlock() -> Diagnostic:
    found = landlock.version()
    if landlock.usable():
        return Diagnostic("Landlock", True, f"version {found} of its interface")
    detail = f"version {found} of its interface is too old" if found else ""
    remedy = "a kernel of Linux 5.19 or newer with Landlock switched on; without it kernels may read your files"
    return Diagnostic("Landlock", False, detail, remedy)


def _bubblewrap() -> Diagnostic:
    obstacle = bubblewrap.obstacle("cpu")
    if obstacle is None:
        return _program("bubblewrap", "bwrap", "")
    return Diagnostic("bubblewrap", False, obstacle, "apt install bubblewrap; Landlock works without")


def _sandbox() -> Diagnostic:
    """The confinement that a worker reaches, tried in one."""
    try:
        worker = Worker(find_device("auto"))
        worker.wait_attached()
        worker.kill()
    except Exception as error:
        return Diagnostic("sandbox", False, _first_line(error), "see the lines above")
    level = worker.sandbox
    lacking = [name for name in ("landlock", "seccomp") if name not in level]
    remedy = f"a worker runs without {' and '.join(lacking)}: judge only kernels that you would run yourself"
    return Diagnostic("sandbox", not lacking, level, remedy)


def readable(level: str) -> Diagnostic:
    """What a kernel can still read in a worker of this level, e.g. "landlock 7, seccomp, limits"."""
    wrapped = "bubblewrap" in level
    if not wrapped and "landlock" not in level:
        detail = "a kernel reads every file and command line that you can read"
        return Diagnostic("readable", False, detail, "see Landlock and bubblewrap")
    detail = (
        "a kernel reads programs and libraries (/usr, /opt, Python, torch, compilers), some files of /etc by name, and "
        "facts of this machine; none of your files, passwords or command lines"
    )
    if not wrapped:
        detail += ". It sees names and sizes of files where it knows or guesses their paths, and ids of processes"
    elif "landlock" not in level:
        detail += " but those of GPU processes"
    return Diagnostic("readable", True, detail)


def _shared_memory() -> Diagnostic:
    try:
        os.close(os.memfd_create("kbevolve-diagnostics"))
    except OSError as error:
        return Diagnostic("shared memory", False, str(error), "allow memfd_create")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Diagnostic("shared memory", True, f"memfd; {memory / 1e9:.0f} GB of memory")


def _program(name: str, program: str, remedy: str, *, line: int = 0) -> Diagnostic:
    """A program that prints its version, of which `line` is shown."""
    path = shutil.which(program) or shutil.which(program, path=str(Path(sys.executable).parent))
    if path is None:
        return Diagnostic(name, False, f"no {program} on the PATH", remedy)
    try:
        text = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return Diagnostic(name, False, f"{path}: {error}", remedy)
    lines = text.strip().splitlines() or [""]
    return Diagnostic(name, True, f"{lines[line if -len(lines) <= line else 0]} ({path})")


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__
