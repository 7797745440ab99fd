"""Where kernels run: one CUDA device or the CPU, what to call it, and whose turn it is to be timed there."""

import fcntl
import hashlib
import os
import platform
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from kbevolve.configs.errors import EvaluatorError, SettingsError


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


def find_devices(choices: Sequence[str]) -> tuple[Device, ...]:
    """The devices that a list means: names as `find_device` takes them, or "all" for every CUDA device of this machine.

    A CPU may be named several times: its judges take turns where they time.

    Raises:
        SettingsError: something is no name of a device, or a CUDA device is named twice.
        EvaluatorError: one of them is not there.
    """
    for choice in choices:
        if not re.fullmatch(r"auto|all|cpu|cuda(:\d+)?", choice):
            raise SettingsError(f"work.devices: {choice!r} is no device; write cpu, cuda:N or all, with commas between")
    if "all" in choices:
        import torch

        # At least the first, so that a machine without any says so.
        choices = [f"cuda:{index}" for index in range(max(1, torch.cuda.device_count()))]
    found = tuple(find_device(choice) for choice in choices)
    names = [device.torch_name for device in found if device.type == "cuda"]
    if len(set(names)) < len(names):
        raise SettingsError(f"work.devices: {', '.join(choices)} names a device twice; each takes one judge")
    return found


def together(devices: Sequence[Device], *, mixed: bool = False) -> Device:
    """What several devices are to a run: the first of them, for they are of one model, or a fingerprint of them all.

    Args:
        devices: at least one.
        mixed: whether they may be of different models.

    Raises:
        EvaluatorError: they are of different models and may not be, or CPUs and GPUs, whose sizes of problems differ.
    """
    kinds = {device.fingerprint: device for device in devices}
    if len(kinds) == 1:
        return devices[0]
    told = "; ".join(sorted(kinds))
    if len({device.type for device in devices}) > 1:
        raise EvaluatorError(f"CPUs and GPUs cannot judge one run: {told}; choose one kind with --devices")
    if not mixed:
        raise EvaluatorError(
            f"the devices are of different models or versions: {told}; choose equal ones with --devices, or let them "
            "judge one run all the same with --set work.mixed_devices=true"
        )
    # A name of its own: what such a run finds is never ranked with what one of the models found alone.
    return replace(
        devices[0],
        fingerprint=" + ".join(sorted(kinds)),
        description=" or ".join(sorted({device.description for device in devices})),
    )


def visible_name(index: int, environment: Mapping[str, str]) -> str:
    """What CUDA_VISIBLE_DEVICES must hold for a process that is to see only the device that has this index here."""
    visible = [name for name in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return visible[index] if index < len(visible) else str(index)


@contextmanager
def exclusive(device: Device) -> Iterator[None]:
    """Hold the device alone among this machine's kbevolve processes, so that who is timed has it to himself."""
    with ExitStack() as turn:
        # Nobody may begin to share it while somebody waits to have it alone, who would wait for ever otherwise.
        turn.enter_context(_locked(device, "turn", fcntl.LOCK_EX))
        with _locked(device, "use", fcntl.LOCK_EX):
            turn.close()
            yield


@contextmanager
def shared(device: Device) -> Iterator[None]:
    """Hold the device beside other processes that share it, and beside none that has it alone."""
    with _locked(device, "turn", fcntl.LOCK_EX):
        pass
    with _locked(device, "use", fcntl.LOCK_SH):
        yield


@contextmanager
def beside(device: Device) -> Iterator[None]:
    """Share the device for longer than who shares it now, without waiting: to be entered inside `shared`."""
    with _locked(device, "use", fcntl.LOCK_SH):
        yield


@contextmanager
def _locked(device: Device, what: str, operation: int) -> Iterator[None]:
    name = hashlib.sha256(f"{device.type}:{_cuda_identity(device)}".encode()).hexdigest()[:12]
    path = Path(tempfile.gettempdir()) / f"kbevolve-{os.getuid()}-{name}-{what}.lock"
    with path.open("w") as lock:
        fcntl.flock(lock, operation)
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
