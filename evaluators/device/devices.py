"""The devices that kernels run on: one CUDA device or the CPU, and what identifies it."""

import os
import platform
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from kbevolve.configs.errors import EvaluatorError, SettingsError


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device that kernels are judged on."""

    #: "cpu" or "cuda".
    type: str
    #: Index among the visible CUDA devices; 0 on a CPU.
    index: int
    #: Model, threads, versions of torch, CUDA and Triton. Results with different fingerprints are not ranked together.
    fingerprint: str
    #: One line for people and models.
    description: str
    #: Threads of torch and OpenMP, the same for the reference and every kernel.
    threads: int = 1

    @property
    def torch_name(self) -> str:
        """torch's name of it: "cpu", "cuda:0", …"""
        return "cpu" if self.type == "cpu" else f"cuda:{self.index}"


def find_device(choice: str) -> Device:
    """The device named "auto" (CUDA when there is one, else the CPU), "cpu", "cuda" or "cuda:N", or EvaluatorError."""
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
    """The devices of a list: names as in `find_device`, or "all" for every CUDA device of this machine.

    A CPU may be named several times: its judges time kernels in turn.

    Raises:
        SettingsError: a name is not valid, or a CUDA device is named twice.
        EvaluatorError: there is no such device.
    """
    for choice in choices:
        if not re.fullmatch(r"auto|all|cpu|cuda(:\d+)?", choice):
            raise SettingsError(f"work.devices: {choice!r} is no device; write cpu, cuda:N or all, with commas between")
    if "all" in choices:
        import torch

        # At least the first one, so that a machine without CUDA devices raises the error.
        choices = [f"cuda:{index}" for index in range(max(1, torch.cuda.device_count()))]
    found = tuple(find_device(choice) for choice in choices)
    names = [device.torch_name for device in found if device.type == "cuda"]
    if len(set(names)) < len(names):
        raise SettingsError(f"work.devices: {', '.join(choices)} names a device twice; each takes one judge")
    return found


def together(devices: Sequence[Device], *, mixed: bool = False) -> Device:
    """One device for a run on several: the first one, or for different models one with the fingerprints of all.

    EvaluatorError: different models without `mixed`, or CPUs and GPUs, whose problem sizes differ.
    """
    kinds = {device.fingerprint: device for device in devices}
    if len(kinds) == 1:
        return devices[0]
    listed = "; ".join(sorted(kinds))
    if len({device.type for device in devices}) > 1:
        raise EvaluatorError(f"CPUs and GPUs cannot judge one run: {listed}; choose one kind with --devices")
    if not mixed:
        raise EvaluatorError(
            f"the devices are of different models or versions: {listed}; choose equal ones with --devices, or let them "
            "judge one run all the same with --set work.mixed_devices=true"
        )
    # Its own fingerprint: results of such a run are never ranked with results of one model.
    return replace(
        devices[0],
        fingerprint=" + ".join(sorted(kinds)),
        description=" or ".join(sorted({device.description for device in devices})),
    )


def current(device: Device) -> AbstractContextManager[Any]:
    """Makes it the calling thread's device of CUDA.

    Some of torch's operations launch on that one, wherever their tensors are: `torch.ldexp` of torch 2.11 on a second
    device ends in an illegal memory access.
    """
    if device.type == "cpu":
        return nullcontext()
    import torch

    return torch.cuda.device(device.index)


def visible_name(index: int, environment: Mapping[str, str]) -> str:
    """CUDA_VISIBLE_DEVICES for a process that must see only the device with this index here."""
    visible = [name for name in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return visible[index] if index < len(visible) else str(index)


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
    # torch's ROCm calls its devices "cuda", too; theirs are e.g. "gfx942:sramecc+:xnack-".
    architecture = f"sm_{found.major}{found.minor}"
    if torch.version.hip:
        architecture = str(found.gcnArchName).partition(":")[0]
    platform_name = f"ROCm {torch.version.hip}" if torch.version.hip else f"CUDA {torch.version.cuda}"
    stack = f"torch {torch.__version__}/{platform_name}/Triton {package_version('triton') or 'none'}"
    return Device(
        type="cuda",
        index=index,
        fingerprint=f"cuda/{found.name}/{architecture}/{stack}",
        description=(
            f"{found.name}, {found.multi_processor_count} SMs, {found.total_memory / 1e9:.0f} GB, {architecture}, "
            f"{platform_name}, torch {torch.__version__}, Triton {package_version('triton') or 'none'}"
        ),
        threads=len(os.sched_getaffinity(0)),
    )


def cache_bytes(device: Device) -> dict[str, int]:
    """Bytes of the caches of a CPU, by level ("L1", "L2", "L3"), or of a GPU ("L2")."""
    if device.type == "cuda":
        import torch

        return {"L2": int(torch.cuda.get_device_properties(device.index).L2_cache_size)}
    sizes = {}
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            level, kind, text = ((folder / name).read_text().strip() for name in ("level", "type", "size"))
        except OSError:  # some virtual machines leave files out
            continue
        if kind != "Instruction":
            unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
            sizes[f"L{level}"] = int(text.rstrip("KMG") or 0) * unit
    return sizes


def resources(device: Device) -> dict[str, int]:
    """What kernels share: caches in bytes; on a GPU also "shared" memory that a block may have and "SM shared" of a
    multiprocessor, in bytes, and "registers" of 32 bits of a multiprocessor."""
    found = cache_bytes(device)
    if device.type == "cuda":
        import torch

        properties = torch.cuda.get_device_properties(device.index)
        names = {
            "shared": "shared_memory_per_block_optin",
            "SM shared": "shared_memory_per_multiprocessor",
            "registers": "regs_per_multiprocessor",
        }
        found |= {name: int(getattr(properties, field)) for name, field in names.items() if hasattr(properties, field)}
    return found


def cpu_model() -> str:
    """Model name of the processor, with its widest vector extension where the system reports it."""
    try:
        facts = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.machine()
    lines = dict(line.split(":", 1) for line in facts.splitlines() if ":" in line)
    fields = {key.strip(): value.strip() for key, value in lines.items()}
    flags = fields.get("flags", fields.get("Features", "")).split()
    widest = next((flag for flag in ("avx512f", "avx2", "sve", "asimd") if flag in flags), "")
    return " ".join(filter(None, (fields.get("model name", platform.machine()), widest)))


def package_version(package: str) -> str:
    """The version of an installed package; "" for none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
