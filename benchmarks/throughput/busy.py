"""How much of the time a GPU had something to do, as its driver counts it."""

import os
import shutil
import statistics
import subprocess
from types import TracebackType
from typing import Self

from kbevolve.evaluators.device.devices import Device, visible_name

#: Milliseconds between two readings. The driver's own window is between 1/6 s and 1 s long.
_EVERY_MS = 250


class BusyMeter:
    """Mean share of the time in which at least one kernel ran, over all ``with`` blocks; None without `nvidia-smi`.

    A reading counts the judge's own kernels (inputs, truth, comparisons) and every worker's.
    """

    def __init__(self, device: Device) -> None:
        self._program = shutil.which("nvidia-smi") if device.type == "cuda" else None
        # `nvidia-smi` counts all of the machine's devices, torch those that it may see.
        self._name = visible_name(device.index, os.environ)
        self._reader: subprocess.Popen[str] | None = None
        self._readings: list[float] = []

    def __enter__(self) -> Self:
        if self._program is not None:
            query = ["--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
            self._reader = subprocess.Popen(
                [self._program, *query, f"--id={self._name}", f"--loop-ms={_EVERY_MS}"],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._reader is not None:
            # What it has written by now fits into the pipe: 4 bytes a reading, 64 KB hold more than an hour.
            self._reader.terminate()
            said, _ = self._reader.communicate()
            self._readings += [float(line) / 100 for line in said.splitlines() if line.strip().isdigit()]
            self._reader = None

    @property
    def share(self) -> float | None:
        """0 to 1; None when nothing was read."""
        return statistics.fmean(self._readings) if self._readings else None
