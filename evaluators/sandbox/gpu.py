"""The one GPU of a host that a worker may open, by its driver's name and its special file.

CUDA_VISIBLE_DEVICES is no guard: a candidate may change it and start a process, which then sees every GPU of the host.
Nor does it save work. CUDA's initialisation attaches every GPU that it can open, visible or not, and the driver serves
one process of the host at a time: on a host of four GPUs it takes 0.20 s for each process, and 0.11 s where a process
can open only one (docs/results/2026-11-22-several-gpus-h200.md).
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kbevolve.evaluators.device.devices import Device

#: Where Linux drivers describe each GPU, in lines "GPU UUID: GPU-…" and "Device Minor: N".
_DESCRIBED = Path("/proc/driver/nvidia/gpus")
_SPECIAL_FILES = Path("/dev")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A whole GPU."""

    #: As CUDA_VISIBLE_DEVICES takes it, e.g. "GPU-3f0c…": the same whichever of its siblings can be opened.
    name: str
    #: /dev/nvidiaN.
    node: Path


@functools.cache
def find_gpu(device: Device) -> Gpu | None:
    """The GPU of this device; None for a CPU, for a slice of a GPU, or where its special file is not known."""
    if device.type == "cpu":
        return None
    import torch

    found = getattr(torch.cuda.get_device_properties(device.index), "uuid", None)
    # A container may rename special files. Without a match the worker gets all of them.
    return next((gpu for gpu in all_gpus() if gpu.name == f"GPU-{found}" and gpu.node.exists()), None)


def all_gpus(folder: Path = _DESCRIBED) -> tuple[Gpu, ...]:
    """All that a driver describes, in the order of their special files. `folder` has one folder for each GPU."""
    found: dict[int, Gpu] = {}
    for path in folder.glob("*/information"):
        lines = dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
        facts = {key.strip(): value.strip() for key, value in lines.items()}
        name, number = facts.get("GPU UUID", ""), facts.get("Device Minor", "")
        if name and number.isdigit():
            found[int(number)] = Gpu(name=name, node=_SPECIAL_FILES / f"nvidia{number}")
    return tuple(found[number] for number in sorted(found))


def special_files(gpu: Gpu | None, folder: Path = _SPECIAL_FILES) -> Iterator[Path]:
    """The special files that CUDA needs for a GPU, without those of other GPUs; all when `gpu` is None."""
    for path in sorted(folder.glob("nvidia*")):
        is_gpu = path.name.removeprefix("nvidia").isdigit()
        if gpu is None or not is_gpu or path.name == gpu.node.name:
            yield path
