"""Directories of workers and compilers: named after their judge's process, removed whatever they contain."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from kbevolve.evaluators.sandbox.process_table import kill, leaked

#: Prefix of the names of workers' directories; the judge's process id follows.
PREFIX = "kbevolve-worker-"


def make(parent: Path | None = None, *, prefix: str = PREFIX) -> Path:
    """A new directory with the folders home, tmp and work for one process."""
    directory = Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=parent))
    for name in ("home", "tmp", "work"):
        (directory / name).mkdir()
    return directory


def triton_cache(directory: Path) -> Path:
    """Triton's cache in a worker's directory."""
    return directory / "tmp" / "triton"


def remove_stale(parent: Path | None = None, *, prefix: str = PREFIX) -> None:
    """Remove the directories of judges that were killed, and kill the processes that use them."""
    for directory in (parent or Path(tempfile.gettempdir())).glob(f"{prefix}*"):
        owner = directory.name.removeprefix(prefix).partition("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            kill(leaked(directory))
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
