"""The host's cores while judges work: how many are busy, and compilers that work on those that no judge may use."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

#: What the compilers compile, again and again: a second and more of templates, as extensions of torch are.
_SOURCE = """#include <algorithm>
#include <functional>
#include <map>
#include <regex>
#include <string>
int found(const std::string& text) { return std::regex_search(text, std::regex("a+b")); }
"""
#: As the judge's own.
_NICE = 10


class BusyCores:
    """Mean numbers of busy cores over all ``with`` blocks: those that this process may use, and the others."""

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self._stat = stat
        self._own = os.sched_getaffinity(0)
        self._busy = {True: 0, False: 0}
        self._all = 0

    def __enter__(self) -> Self:
        self._begun = self._read()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for core, (busy, all_) in self._read().items():
            self._busy[core in self._own] += busy - self._begun[core][0]
            if core == min(self._own):
                self._all += all_ - self._begun[core][1]

    @property
    def mean(self) -> dict[str, float]:
        """By "own" and "others"."""
        return {name: round(self._busy[own] / max(1, self._all), 1) for name, own in (("own", True), ("others", False))}

    def _read(self) -> dict[int, tuple[int, int]]:
        """Core -> the system's ticks in which it worked, and all."""
        found = {}
        for line in self._stat.read_text().splitlines():
            name, *ticks = line.split()
            if name.startswith("cpu") and name != "cpu":
                counts = [int(one) for one in ticks[:8]]  # user, nice, system, idle, iowait, irq, softirq, steal
                found[int(name.removeprefix("cpu"))] = sum(counts) - counts[3] - counts[4], sum(counts)
        return found


@contextmanager
def compilers(count: int) -> Iterator[None]:
    """So many compilers, each on a core that this process may not use, until the block ends.

    Raises:
        SystemExit: there are not so many other cores, or no g++.
    """
    others = sorted(set(range(os.cpu_count() or 1)) - os.sched_getaffinity(0))
    if count > len(others) or (count and not shutil.which("g++")):
        raise SystemExit(
            f"{count} compilers need g++ and as many cores that this process may not use, not {len(others)}"
        )
    with tempfile.TemporaryDirectory(prefix="kbevolve-compilers-") as folder:
        source = Path(folder) / "source.cpp"
        source.write_text(_SOURCE)
        loop = f"while :; do g++ -O2 -c -o /dev/null {source}; done"
        started = [
            subprocess.Popen(["taskset", "-c", str(core), "nice", "-n", str(_NICE), "sh", "-c", loop], process_group=0)
            for core in others[:count]
        ]
        try:
            yield
        finally:
            for one in started:
                os.killpg(one.pid, signal.SIGKILL)
                one.wait()
