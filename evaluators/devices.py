"""Where kernels run: one CUDA device or the CPU, what to call it, and whose turn it is to be timed there."""

import fcntl
import hashlib
import os
import platform
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from kbevolve.configs.errors import EvaluatorError


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device that kernels are judged on."""

    #: "cpu" or "cuda".
    type: str
    #: Index among the visible CUDA devices; 0 on a CPU.
    index: int
    #: Separates results that must not be ranked together: model, threads, versions of torch, CUDA and Triton.
    fingerprint: str
    #: One line for people and models.
    description: str
    #: Threads of torch and OpenMP, the same for the reference and every kernel.
    threads: int = 1

    @property
    def torch_name(self) -> str:
        """The name torch knows it by: "cpu", "cuda:0", …"""
        return "cpu" if self.type == "cpu" else f"cuda:{self.index}"


def find_device(choice: str) -> Device:
    """The device that is meant by "auto" (CUDA when there is one, else the CPU), "cpu", "cuda" or "cuda:N".

    Raises:
        EvaluatorError: CUDA was asked for and there is none, or not that one.
    """
    import torch

    if choice == "cpu" or (choice == "auto" and not torch.cuda.is_available()):
        return _cpu()
    index = int(choice.partition(":")[2] or 0)
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if index >= count:
        why = f"torch {torch.__version__} sees {count} CUDA device{'s' if count != 1 else ''}"
        raise EvaluatorError(f"device {choice}: {why}; use --device cpu, or see `kbevolve doctor`")
    return _cuda(index)


@contextmanager
def exclusive(device: Device) -> Iterator[None]:
    """Hold the device alone among this machine's kbevolve processes, so that no two are timed at once."""
    name = hashlib.sha256(f"{device.type}:{_cuda_identity(device)}".encode()).hexdigest()[:12]
    path = Path(tempfile.gettempdir()) / f"kbevolve-{os.getuid()}-{name}.lock"
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _cuda_identity(device: Device) -> str:
    """What names the card beyond this process's own numbering of devices."""
    if device.type == "cpu":
        return ""
    import torch

    return str(getattr(torch.cuda.get_device_properties(device.index), "uuid", device.index))


def _cpu() -> Device:
    import torch

    threads = len(os.sched_getaffinity(0))
    model = cpu_model()
    return Device(
        type="cpu",
        index=0,
        fingerprint=f"cpu/{model}/{threads} threads/torch {torch.__version__}",
        description=f"{model}, {threads} thread{'s' if threads != 1 else ''}, torch {torch.__version__}",
        threads=threads,
    )


def _cuda(index: int) -> Device:
    import torch

    found = torch.cuda.get_device_properties(index)
    architecture = f"sm_{found.major}{found.minor}"
    stack = f"torch {torch.__version__}/CUDA {torch.version.cuda}/Triton {_version('triton')}"
    return Device(
        type="cuda",
        index=index,
        fingerprint=f"cuda/{found.name}/{architecture}/{stack}",
        description=(
            f"{found.name}, {found.multi_processor_count} SMs, {found.total_memory / 1e9:.0f} GB, {architecture}, "
            f"CUDA {torch.version.cuda}, torch {torch.__version__}"
        ),
        threads=len(os.sched_getaffinity(0)),
    )


def cpu_model() -> str:
    """Model name of the processor, with its widest vector extension when the system tells."""
    try:
        facts = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.machine()
    lines = dict(line.split(":", 1) for line in facts.splitlines() if ":" in line)
    fields = {key.strip(): value.strip() for key, value in lines.items()}
    flags = fields.get("flags", fields.get("Features", "")).split()
    widest = next((flag for flag in ("avx512f", "avx2", "sve", "asimd") if flag in flags), "")
    return " ".join(filter(None, (fields.get("model name", platform.machine()), widest)))


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"
