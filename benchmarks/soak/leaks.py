"""What a process holds: descriptors, threads, mappings, memory, children, files of its own."""

import contextlib
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from kbevolve.evaluators.sandbox import process_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """Counts at one moment."""

    #: Open descriptors, kernel threads, and mappings of memory files.
    descriptors: int
    threads: int
    shared_mappings: int
    #: Living and unreaped descendants, and folders and files in the temporary directory that name this process.
    descendants: int
    files: int
    #: Entries in the shared-memory folder that no other program has mapped.
    shared_memory: int
    #: Megabytes in memory.
    rss_mb: float

    def beyond(self, before: "Holdings") -> dict[str, int]:
        """What there is more of than before, memory apart."""
        mine, theirs = asdict(self), asdict(before)
        return {name: mine[name] - theirs[name] for name in mine if name != "rss_mb" and mine[name] > theirs[name]}


def holdings() -> Holdings:
    """What this process holds now."""
    own = os.getpid()
    return Holdings(
        descriptors=len(os.listdir("/proc/self/fd")),
        threads=len(os.listdir("/proc/self/task")),
        shared_mappings=sum("/memfd:" in line for line in Path("/proc/self/maps").read_text().splitlines()),
        descendants=len(descendants(own)),
        files=sum(1 for _ in Path(tempfile.gettempdir()).glob(f"kbevolve-*-{own}-*")),
        shared_memory=len(_shared_memory() - _mapped_elsewhere(own)),
        rss_mb=_rss_mb(),
    )


def _shared_memory() -> set[str]:
    with contextlib.suppress(OSError):
        return {str(path) for path in Path("/dev/shm").iterdir()}
    return set()


def _mapped_elsewhere(own: int) -> set[str]:
    """Files that living processes outside this one's tree have mapped."""
    ours = {own, *descendants(own)}
    found: set[str] = set()
    for process in process_table.processes():
        if process.pid not in ours:
            with contextlib.suppress(OSError):  # it exited, or belongs to another user
                lines = Path(f"/proc/{process.pid}/maps").read_text().splitlines()
                found |= {line.split(maxsplit=5)[5] for line in lines if "/dev/shm/" in line}
    return found


def growth_mb(samples: Sequence[float]) -> float:
    """Megabytes that memory grew from the second quarter of the samples to the last.

    The first quarter fills caches; medians, because a single sample catches whatever was under way.
    """
    if len(samples) < 4:
        return 0.0
    quarter = len(samples) // 4
    return median(samples[-quarter:]) - median(samples[quarter : 2 * quarter])


def descendants(ancestor: int) -> set[int]:
    """Process ids of its children, their children, and so on, unreaped ones included."""
    children: dict[int, list[int]] = {}
    for process in process_table.processes():
        children.setdefault(process.parent, []).append(process.pid)
    found: set[int] = set()
    waiting = [ancestor]
    while waiting:
        for child in children.get(waiting.pop(), []):
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found


def _rss_mb() -> float:
    with contextlib.suppress(OSError, ValueError):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    return 0.0
