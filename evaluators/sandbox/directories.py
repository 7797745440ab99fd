"""The directories of workers and compilers: made with their judge's number, removed whatever is in them."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from kbevolve.evaluators.sandbox import process_table

#: How the names of workers' directories begin; then follows the process id of the judge.
PREFIX = "kbevolve-worker-"


def make(parent: Path | None = None, *, prefix: str = PREFIX) -> Path:
    """A process's own directory: its home, its temporary files and where it works."""
    directory = Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=parent))
    for name in ("home", "tmp", "work"):
        (directory / name).mkdir()
    return directory


def triton_cache(directory: Path) -> Path:
    """Where Triton keeps what it builds in the worker with this directory."""
    return directory / "tmp" / "triton"


def sweep(*, prefix: str = PREFIX) -> None:
    """End and remove what judges that were killed left behind."""
    for directory in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        owner = directory.name.removeprefix(prefix).partition("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            process_table.kill(process_table.leaked(directory))
            remove(directory)


def remove(directory: Path) -> None:
    """Remove a worker's directory, whatever a candidate made of it; what cannot be removed stays."""
    with contextlib.suppress(RecursionError):  # a tree deeper than Python goes
        shutil.rmtree(directory, ignore_errors=True)
    # … or with folders that nobody may enter, which only root removes at once.
    for command in (["rm", "-rf"], ["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
        if not directory.exists():
            return
        subprocess.run([*command, "--", str(directory)], capture_output=True, check=False)
