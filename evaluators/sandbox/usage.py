"""What an evaluation holds of the machine, over all of its processes: memory, files, processes, threads, descriptors.

Limits of Linux bind one process or one file, or all processes of a user. Where no control group can be made, a count of
what is held, every half second, makes one limit for the whole.
"""

import contextlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from stat import S_ISREG

from kbevolve.evaluators.sandbox.process_table import Process

#: A file by its device and number.
FileId = tuple[int, int]

_CORES = os.cpu_count() or 1
#: Processes: ninja runs a compiler of up to five processes on each core. The system's own limit does not bind root, and
#: for other users counts all their processes.
MOST_PROCESSES = max(256, 8 * _CORES)
#: Threads: a few pools of one for each core.
_MOST_THREADS = max(1024, 32 * _CORES)
#: Open descriptors: what one process may have (`worker.confinement`), or a few for each process.
_MOST_DESCRIPTORS = max(4096, 64 * _CORES)
#: Bytes of files, named or not, in memory or on disk. Compiled extensions and Triton's caches are a few megabytes.
FILE_BYTES = 1 << 30
#: Files and folders: caches of torch.compile have hundreds.
_MOST_FILES = 10_000
#: Blocks of st_blocks (stat(2)).
_BLOCK = 512
#: Lines of /proc/PID/status and /proc/PID/smaps_rollup, in kilobytes, and of /proc/PID/maps for a file without a name.
_STATUS = re.compile(rb"^(?:RssAnon|RssShmem|VmSwap):\s+(\d+) kB", re.MULTILINE)
_ROLLUP = re.compile(rb"^(?:Pss_Anon|Pss_Shmem|SwapPss):\s+(\d+) kB", re.MULTILINE)
_NAMELESS = re.compile(rb"^(\S+) \S+ \S+ (\w+):(\w+) (\d+) +(/.*) \(deleted\)$", re.MULTILINE)
#: Shared memory without a file, which CUDA's driver takes for pinned memory. It counts as memory.
_ANONYMOUS = (b"/dev/zero", b"/anon_hugepage")
#: Bytes for which a nameless file counts that is only mapped, where the judge may not ask for its size.
_UNKNOWN_BYTES = 64 << 20


class TooMuch(Exception):
    """It holds more than an evaluation may; the message says of what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What one worker may hold."""

    #: Its own, writable.
    directory: Path
    #: Bytes of all its processes.
    memory: int
    #: Files that the judge sent it, which do not count -> bytes.
    lent: dict[FileId, int] = field(default_factory=dict)
    #: Whether this system lets the judge see what it holds.
    visible: bool

    @classmethod
    def of(cls, worker: int, directory: Path, memory: int) -> "Allowance":
        """That of a worker that holds no candidate yet."""
        try:
            os.listdir(f"/proc/{worker}/fd")
        except OSError:
            return cls(directory=directory, memory=memory, visible=False)
        return cls(directory=directory, memory=memory, visible=True)

    def lend(self, descriptor: int) -> None:
        """Do not count this file."""
        found = os.fstat(descriptor)
        self.lent[found.st_dev, found.st_ino] = found.st_size


def check(found: Sequence[Process], allowed: Allowance, *, mapped: bool) -> None:
    """Raise `TooMuch` when these processes hold too much. About 0.2 ms for one process.

    `mapped`: look for files that are only mapped, too, which takes a millisecond more.
    """
    _limit(len(found), MOST_PROCESSES, "processes")
    _limit(sum(process.threads for process in found), _MOST_THREADS, "threads")
    files: dict[FileId, int] = {}
    views: list[str] = []
    memory = descriptors = 0
    for process in found if allowed.visible else ():
        try:
            view = _view(process)
            memory += _kilobytes(f"{view}/status", _STATUS)
            views.append(view)
            descriptors += _count_open(view, files)
            if mapped:
                _count_mapped(view, files)
        except PermissionError:
            raise TooMuch("a process that hides what it holds") from None
        except OSError:  # it exited meanwhile
            continue
        _limit(descriptors, _MOST_DESCRIPTORS, "open files")
    most = (allowed.memory + sum(allowed.lent.values())) >> 10
    if memory > most:  # counts twice what parent and child share, as after a fork; the exact count reads page tables
        memory = sum(_kilobytes(f"{view}/smaps_rollup", _ROLLUP) for view in views)
    _limit(memory >> 10, most >> 10, "MB of memory")
    _count_folder(allowed.directory, files)
    held = sum(size for file, size in files.items() if file not in allowed.lent)
    _limit(held >> 20, FILE_BYTES >> 20, "MB in files")


def _limit(count: int, most: int, what: str) -> None:
    if count > most:
        raise TooMuch(f"{count} {what}, at most {most} may be")


def _view(process: Process) -> str:
    """The folder of /proc that shows what a process holds: a living thread's when the first thread has exited."""
    own = f"/proc/{process.pid}"
    if process.threads > 1:
        for thread in (own, *(f"{own}/task/{name}" for name in os.listdir(f"{own}/task"))):
            with contextlib.suppress(FileNotFoundError):  # as an exited thread answers
                os.readlink(f"{thread}/exe")
                return thread
    return own


def _kilobytes(path: str, lines: re.Pattern[bytes]) -> int:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(path, "rb") as file:
        return sum(map(int, lines.findall(file.read())))
    return 0  # it exited meanwhile


def _count_open(view: str, files: dict[FileId, int]) -> int:
    """Add open files without a name; returns the number of all descriptors."""
    names = os.listdir(f"{view}/fd")
    for name in names[: _MOST_DESCRIPTORS + 1]:
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            _add(os.stat(f"{view}/fd/{name}"), files)
    return len(names)


def _count_mapped(view: str, files: dict[FileId, int]) -> None:
    """Add mapped files without a name."""
    with open(f"{view}/maps", "rb") as maps:
        for place, major, minor, number, name in _NAMELESS.findall(maps.read()):
            if name in _ANONYMOUS:
                continue
            try:
                _add(os.stat(f"{view}/map_files/{place.decode()}"), files)
            except PermissionError:  # only root may
                files.setdefault((os.makedev(int(major, 16), int(minor, 16)), int(number)), _UNKNOWN_BYTES)
            except FileNotFoundError:  # unmapped meanwhile
                continue


def _add(found: os.stat_result, files: dict[FileId, int]) -> None:
    if S_ISREG(found.st_mode) and not found.st_nlink:
        files[found.st_dev, found.st_ino] = found.st_blocks * _BLOCK


def _count_folder(folder: Path, files: dict[FileId, int]) -> None:
    """Add all files of a folder that a hostile process may change meanwhile."""
    waiting, count = [str(folder)], 0
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    count += 1
                    _limit(count, _MOST_FILES, "files and folders")
                    found = entry.stat(follow_symlinks=False)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    files[found.st_dev, found.st_ino] = found.st_blocks * _BLOCK
        except FileNotFoundError:  # removed meanwhile
            continue
        except OSError as error:  # too deep, or closed to its owner
            raise TooMuch(f"a folder that the judge cannot read ({error.strerror})") from None
