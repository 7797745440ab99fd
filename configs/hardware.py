"""GPUs by their data sheets (`hardware.yaml`), for prompts on a machine that has none of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from kbevolve.configs.errors import UsageError, nearest

_FILE = Path(__file__).with_name("hardware.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSheet:
    """One GPU."""

    title: str
    #: Multiprocessors; compute units of AMD.
    sms: int
    #: GB, GB/s, and MiB.
    memory: int
    bandwidth: int
    l2: int
    #: As a device's description names it, e.g. "sm_90" or "gfx942".
    architecture: str
    #: KiB of shared memory of a multiprocessor, and the most of one block.
    shared: tuple[int, int]
    #: Format of the operands -> dense TFLOP/s; tensor cores except for fp32.
    peaks: Mapping[str, float]

    @property
    def description(self) -> str:
        """One line, as of a device that is there."""
        units = "SMs" if self.architecture.startswith("sm_") else "CUs"
        return f"{self.title}, {self.sms} {units}, {self.memory} GB, {self.architecture}"

    @property
    def lines(self) -> list[str]:
        """What a prompt says beside the description."""
        most, block = self.shared
        peaks = ", ".join(f"{name.replace('tf', 'TF')} {value:g}" for name, value in self.peaks.items())
        return [
            f"A block may have {block} KiB of the {most} KiB of a multiprocessor as shared memory; L2 {self.l2} MiB.",
            f"By the data sheet: {self.bandwidth} GB/s of memory bandwidth; dense products, TFLOP/s: {peaks}.",
        ]


@cache
def data_sheets() -> Mapping[str, DataSheet]:
    """All of them by name. Tests hold the file well-formed; it is not checked again."""
    tree = yaml.safe_load(_FILE.read_text(encoding="utf-8"))
    return {name: DataSheet(**{**facts, "shared": tuple(facts["shared"])}) for name, facts in tree.items()}


def data_sheet(name: str) -> DataSheet:
    """The GPU of this name, whatever the case.

    Raises:
        UsageError: there is none.
    """
    for known, sheet in data_sheets().items():
        if known.lower() == name.lower():
            return sheet
    raise UsageError(f"no data sheet of a GPU {name!r}. {nearest(name, data_sheets())}")


def lines_of(description: str) -> list[str]:
    """`DataSheet.lines` of the GPU with this description; none for a device that is there."""
    return next((sheet.lines for sheet in data_sheets().values() if sheet.description == description), [])
