"""Directories of workers and compilers: named after their judge's process, removed whatever they contain.

Judges may share a folder of temporary files although none can see the others' processes: in containers, in namespaces
of processes, on hosts with a common disk. And a process may get the id of one that has ended. So a name holds what
distinguishes a process from all of them, and a judge removes what belongs to ended processes of its own namespace only.
"""

import contextlib
import functools
import os
import re
import shutil
import socket
import subprocess
import tempfile
from hashlib import sha256
from pathlib import Path

#: Prefix of the names of workers' directories.
PREFIX = "kbevolve-worker-"
_HEX = re.compile(r"[0-9a-f]{1,8}")


def make(parent: Path | None = None, *, prefix: str = PREFIX) -> Path:
    """A new directory with the folders home, tmp and work for one process."""
    directory = empty(parent, prefix=prefix)
    for name in ("home", "tmp", "work"):
        (directory / name).mkdir()
    return directory


def empty(parent: Path | None = None, *, prefix: str = PREFIX) -> Path:
    """A new directory that belongs to this process."""
    # As /proc has it, which may show another namespace than the process's own.
    pid = int(os.readlink("/proc/self"))
    return Path(tempfile.mkdtemp(prefix=f"{prefix}{_namespace()}-{pid:x}-{_start(pid)}-", dir=parent))


def triton_cache(directory: Path) -> Path:
    """Triton's cache in a worker's directory."""
    return directory / "tmp" / "triton"


def remove_stale(parent: Path | None = None, *, prefix: str = PREFIX) -> None:
    """Remove the directories of judges that were killed. Their processes ended with them (`worker.supervisor`)."""
    ours = f"{prefix}{_namespace()}-"
    for directory in (parent or Path(tempfile.gettempdir())).glob(f"{ours}*"):
        match directory.name.removeprefix(ours).split("-"):
            case [pid, start, _] if _HEX.fullmatch(pid) and _start(int(pid, 16)) != start:
                remove(directory)


def remove(directory: Path) -> None:
    """Remove a directory, whatever a candidate left in it; what cannot be removed stays."""
    with contextlib.suppress(RecursionError):  # deeper than Python's recursion limit
        shutil.rmtree(directory, ignore_errors=True)
    # Folders without permissions need a chmod first, except for root.
    for command in (["rm", "-rf"], ["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
        if not directory.exists():
            return
        subprocess.run([*command, "--", str(directory)], capture_output=True, check=False)


@functools.cache
def _namespace() -> str:
    """This host's or container's namespace of processes, as part of a name."""
    return sha256(f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}".encode()).hexdigest()[:5]


def _start(pid: int) -> str:
    """When a process began, in ticks since the machine did; "" when there is none."""
    with contextlib.suppress(OSError):
        return f"{int(Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[19]):x}"
    return ""
