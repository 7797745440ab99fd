"""The memory of a device: what is free, how it is released, and the error of a judge that finds too little."""

import re
import resource
from pathlib import Path

import torch

from kbevolve.configs.errors import EvaluatorError
from kbevolve.evaluators.device.devices import Device


class TooLittleMemoryError(EvaluatorError):
    """The device has too little memory for what the judge was asked for."""


def free_bytes(device: Device) -> int:
    """Bytes that can be allocated, after torch has released its cache."""
    release_cache(device)
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device.index)[0]
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise EvaluatorError("/proc/meminfo names no MemAvailable; kbevolve runs on Linux 3.14 or newer")


class Peak:
    """The most memory that torch holds on a device from now on, beyond what it holds now. Only CUDA counts it."""

    def __init__(self, device: Device) -> None:
        self._device = device
        release_cache(device)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device.index)
            self._before = torch.cuda.memory_reserved(device.index)

    def bytes(self, *, otherwise: int) -> int:
        """So many bytes; `otherwise` on a CPU."""
        if self._device.type != "cuda":
            return otherwise
        return torch.cuda.max_memory_reserved(self._device.index) - self._before


def refuse_beyond_free(device: Device) -> None:
    """On a CPU, let this process allocate no more than is free now: the allocation then fails, with an exception.

    Without this the system promises any amount, and kills the process when it uses it. CUDA refuses by itself.
    """
    if device.type != "cpu":
        return
    pages = int(Path("/proc/self/statm").read_text().split()[5])
    most = pages * resource.getpagesize() + free_bytes(device)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def release_cache(device: Device) -> None:
    """Release the memory that torch caches for later allocations, so that other processes can use it."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether memory ran out, by an error, its text, or its cause."""
    return (
        isinstance(error, torch.OutOfMemoryError | MemoryError)
        or names_lack_of_memory(str(error))
        or (error is not None and is_out_of_memory(error.__cause__))
    )


def names_lack_of_memory(message: str) -> bool:
    """Whether this is what torch says without memory: on CUDA, or on a CPU, where it raises a plain RuntimeError."""
    return "out of memory" in message.lower() or "can't allocate memory" in message


def lack_of_memory(what: str, device: Device, error: BaseException) -> TooLittleMemoryError:
    """One line for an error for which `is_out_of_memory` holds: what was needed, what was free, what to do."""
    text = f"{error} {error.__cause__ or ''}"
    needed, free = re.search(r"ried to allocate ([\d.]+ \w+)", text), re.search(r"of which ([\d.]+ \w+) is free", text)
    words = f"{needed[1]} more were needed" if needed else "no more could be allocated"
    words += f", {free[1]} were free" if free else ""
    return TooLittleMemoryError(
        f"{what}: the judge has too little memory on {device.torch_name}: {words}; end what else uses the device, "
        "or use smaller sizes or a larger device"
    )
