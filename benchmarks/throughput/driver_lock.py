"""Workers that wait for the GPU driver's lock while judges work, and GPUs that have nothing to do meanwhile.

The driver serves one process of a host at a time. Linux shows root where a process waits inside the kernel
(/proc/PID/stack). A worker that waits for this lock is in `rmapiLockAcquire`, or in the driver's function for locks of
that kind.
"""

import os
import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from kbevolve.evaluators.sandbox.gpu import all_gpus
from kbevolve.evaluators.sandbox.launch import PROGRAM

#: Seconds between two samples. The driver counts a GPU as busy over a window of 1/6 s to 1 s.
_EVERY = 0.2
_LOCKS = ("rmapiLockAcquire", "os_acquire_rwlock")
_DRIVER = "[nvidia"
_FILES = "/dev/nvidia"


def stacks(proc: Path, gpus: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The GPU ("GPU-UUID") and the kernel's stack of each worker of a judge that has opened the driver's files.

    A worker is forked, so its environment in /proc is that of its fork server, which names no GPU. The file that it has
    open does. `gpus`: the names of GPUs by these files. A worker that has none of them yet has GPU "".
    """
    program = os.fsencode(PROGRAM)
    for folder in proc.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            if program not in (folder / "cmdline").read_bytes():
                continue
            files = {os.readlink(file) for file in (folder / "fd").iterdir()}
            if any(file.startswith(_FILES) for file in files):
                yield next((gpus[file] for file in files if file in gpus), ""), (folder / "stack").read_text()
        except OSError:  # It ended meanwhile, or its stack is not ours to read.
            continue


def _waits(stack: str) -> bool:
    return any(lock in stack for lock in _LOCKS)


class DriverLock:
    """Samples the workers and the GPUs over all ``with`` blocks."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._gpus = {str(gpu.node): gpu.name for gpu in all_gpus()}
        self._samples = 0
        #: Samples in which a worker waited for the lock or was in the driver, and the workers that waited, in all.
        self._waited = self._held = self._waiters = 0
        #: By GPU: samples with a waiting worker, with nothing to do, and with both.
        self._by_gpu: Counter[tuple[str, str]] = Counter()
        self._busy: dict[str, bool] = {}
        #: Where workers were, by the innermost function.
        self._places: Counter[str] = Counter()

    def __enter__(self) -> Self:
        self._ended = threading.Event()
        query = ["--query-gpu=uuid,utilization.gpu", "--format=csv,noheader,nounits", "--loop-ms=200"]
        self._meter = (
            subprocess.Popen(["nvidia-smi", *query], stdout=subprocess.PIPE, text=True)
            if shutil.which("nvidia-smi")
            else None
        )
        self._threads = [threading.Thread(target=self._read_meter), threading.Thread(target=self._sample)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._meter is not None:
            self._meter.terminate()
        for thread in self._threads:
            thread.join()

    def _read_meter(self) -> None:
        for line in self._meter.stdout or () if self._meter else ():
            gpu, _, busy = line.partition(",")
            self._busy[gpu.strip()] = busy.strip() != "0"

    def _sample(self) -> None:
        while not self._ended.wait(_EVERY):
            self.take(list(stacks(self._proc, self._gpus)), self._busy)

    def take(self, found: list[tuple[str, str]], busy: dict[str, bool]) -> None:
        """Add one sample: each worker's GPU and stack, and whether each GPU had something to do."""
        waiting = Counter(gpu for gpu, stack in found if _waits(stack))
        self._places.update(stack.partition("+")[0].removeprefix("[<0>] ") for _, stack in found)
        self._samples += 1
        self._waiters += waiting.total()
        self._waited += bool(waiting)
        self._held += any(_DRIVER in stack and not _waits(stack) for _, stack in found)
        for gpu, is_busy in busy.items():
            self._by_gpu[gpu, "waits"] += bool(waiting[gpu])
            self._by_gpu[gpu, "idle"] += not is_busy
            self._by_gpu[gpu, "idle and waits"] += bool(waiting[gpu]) and not is_busy

    @property
    def shares(self) -> dict[str, object]:
        """Shares of the samples, 0 to 1; "waiters" is how many workers waited, in the mean."""
        if not self._samples:
            return {}

        def share(count: int) -> float:
            return round(count / self._samples, 3)

        gpus = sorted({gpu for gpu, _ in self._by_gpu})
        by_gpu = [
            {what: share(self._by_gpu[gpu, what]) for what in ("waits", "idle", "idle and waits")} for gpu in gpus
        ]
        return {
            "samples": self._samples,
            "someone in the driver": share(self._held),
            "someone waits": share(self._waited),
            "waiters": share(self._waiters),
            "gpus": by_gpu,
            "places": {place: share(count) for place, count in self._places.most_common(8)},
        }
