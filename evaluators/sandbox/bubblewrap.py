"""bubblewrap around a worker: namespaces of its own, where the machine has the program and lets it work."""

import functools
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kbevolve.evaluators.sandbox.permissions import Permissions
from kbevolve.evaluators.sandbox.process_table import Process

#: Seconds for the trial, which takes 5 ms.
_TRIAL_SECONDS = 10.0


def command(grants: Permissions, device_type: str, directory: Path) -> list[str]:
    """The words in front of the worker's own command.

    The file system is put together from the grants, read-only but for the worker's directory. On the CPU the worker
    also sees no processes, network or shared memory but its own; CUDA shares memory between processes by their
    ids and needs those namespaces to be the judge's.
    """
    words = ["bwrap", "--die-with-parent", "--cap-drop", "ALL", "--unshare-uts"]
    if device_type == "cpu":
        words += ["--unshare-pid", "--unshare-net", "--unshare-ipc"]
    mounts = [(root, "--ro-bind-try") for root in grants.roots]
    mounts += [(path, "--tmpfs") for path in grants.hidden if any(path.is_relative_to(root) for root in grants.roots)]
    # What lies deeper is mounted later, upon what holds it.
    for path, kind in sorted(mounts, key=lambda mount: len(mount[0].parts)):
        words += [kind, str(path)] if kind == "--tmpfs" else [kind, str(path), str(path)]
    words += ["--proc", "/proc", "--ro-bind", "/sys", "/sys", "--dev", "/dev"]
    for path in grants.devices:
        words += ["--dev-bind-try", str(path), str(path)]
    for path in grants.writable:
        words += ["--bind", str(path), str(path)]
    return [*words, "--remount-ro", "/", "--chdir", str(directory / "work"), "--"]


def guarded(found: Sequence[Process], leader: int, device_type: str) -> list[Process]:
    """Of the processes of a worker, those that are not bubblewrap's own: `leader` and a namespace's first process."""
    own = {leader}
    if device_type == "cpu":
        own |= {process.pid for process in found if process.parent == leader}
    return [process for process in found if process.pid not in own]


@functools.cache
def obstacle(device_type: str) -> str | None:
    """Why bubblewrap cannot be used here, None when it can. Tried once a process."""
    if shutil.which("bwrap") is None:
        return "no bwrap on the PATH"
    with tempfile.TemporaryDirectory(prefix="kbevolve-trial-") as name:
        directory = Path(name)
        (directory / "work").mkdir()
        system = Permissions(
            roots=tuple(Path(root) for root in ("/usr", "/lib", "/lib64", "/bin") if Path(root).exists()),
            hidden=(),
            devices=(Path("/dev/null"),),
            writable=(directory,),
        )
        try:
            done = subprocess.run(
                [*command(system, device_type, directory), "true"],
                capture_output=True,
                text=True,
                timeout=_TRIAL_SECONDS,
                check=False,
            )
        except (OSError, subprocess.SubprocessError) as error:
            return str(error)
    said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return None if done.returncode == 0 else said[-1]
