"""What the fuzzed process holds: its peak of memory, and what it leaves behind."""

import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.soak.leaks import Holdings, holdings

#: Megabytes that the judge's process may ever have in memory.
MOST_MB = 1000.0


class Watch:
    """Looks at this process before, between and after the cases."""

    def __enter__(self) -> Self:
        self.peak_mb = 0.0
        self.left_over: dict[str, int] = {}
        self._before = holdings()
        self._files = _files()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.look()
        beyond = holdings().beyond(self._before)
        # torch keeps the threads with which it first computed, and Linux a descriptor for each event loop of a library.
        self.left_over = {name: count for name, count in beyond.items() if name in _MUST_NOT_GROW}
        if files := _files() - self._files:
            self.left_over["in the temporary directory"] = len(files)

    def look(self) -> None:
        """Note the most memory since the last look."""
        self.peak_mb = max(self.peak_mb, _rss_mb())

    @property
    def ok(self) -> bool:
        """Whether nothing was left, and memory stayed below the limit."""
        return not self.left_over and self.peak_mb < MOST_MB


_MUST_NOT_GROW = frozenset(Holdings.__dataclass_fields__) - {"threads", "rss_mb"}


def _files() -> set[Path]:
    """Files and folders in the temporary directory, but for what is made once for all judges of a user.

    That are the locks of a device, and the folder of torch's compiler.
    """
    found = Path(tempfile.gettempdir()).iterdir()
    return {path for path in found if path.suffix != ".lock" and not path.name.startswith("torchinductor_")}


def _rss_mb() -> float:
    """The most memory since the last look: Linux lets a process set its high-water mark back."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    peak = float(status["VmHWM"].split()[0]) / 1e3
    Path("/proc/self/clear_refs").write_text("5")
    return peak
