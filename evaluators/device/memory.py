"""The free memory of a device."""

from pathlib import Path

import torch

from kbevolve.configs.errors import EvaluatorError
from kbevolve.evaluators.device.devices import Device


def free_bytes(device: Device) -> int:
    """Bytes that can be allocated, after torch has released its cache."""
    release_cache(device)
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device.index)[0]
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise EvaluatorError("/proc/meminfo names no MemAvailable; kbevolve runs on Linux 3.14 or newer")


def release_cache(device: Device) -> None:
    """Release the memory that torch caches for later allocations, so that other processes can use it."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
