"""bubblewrap around a worker or a compiler: its own namespaces, where the machine has the program and lets it work."""

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

from kbevolve.evaluators.sandbox.permissions import Permissions

#: Seconds for the trial, which takes 5 ms.
_TRIAL_SECONDS = 10.0


def command(permissions: Permissions, device_type: str, directory: Path) -> list[str]:
    """The arguments before the confined program's own command.

    The file system is built from the permissions, read-only except for the program's directory. On the CPU the program
    has its own process, network and IPC namespaces. CUDA shares memory between processes by their ids, so on a GPU
    these stay the judge's.
    """
    arguments = ["bwrap", "--die-with-parent", "--cap-drop", "ALL", "--unshare-uts"]
    if device_type == "cpu":
        arguments += ["--unshare-pid", "--unshare-net", "--unshare-ipc"]
    roots = permissions.roots
    mounts = [(root, "--ro-bind-try") for root in roots]
    mounts += [(path, "--tmpfs") for path in permissions.hidden if any(path.is_relative_to(root) for root in roots)]
    # A deeper path is mounted later, over the mount that contains it.
    for path, kind in sorted(mounts, key=lambda mount: len(mount[0].parts)):
        arguments += [kind, str(path)] if kind == "--tmpfs" else [kind, str(path), str(path)]
    arguments += ["--proc", "/proc", "--ro-bind", "/sys", "/sys", "--dev", "/dev"]
    for path in permissions.devices:
        arguments += ["--dev-bind-try", str(path), str(path)]
    for path in permissions.writable:
        arguments += ["--bind", str(path), str(path)]
    # Memory that no limit of the worker's counts: nothing is written there.
    closed = [path for path, kind in mounts if kind == "--tmpfs"]
    for path in (Path("/"), Path("/dev"), *closed):
        arguments += ["--remount-ro", str(path)]
    return [*arguments, "--chdir", str(directory / "work"), "--"]


@functools.cache
def obstacle(device_type: str) -> str | None:
    """Why bubblewrap cannot be used here; None when it can. Tried once in each process."""
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
        trial = [*command(system, device_type, directory), "true"]
        try:
            done = subprocess.run(trial, capture_output=True, text=True, timeout=_TRIAL_SECONDS, check=False)
        except (OSError, subprocess.SubprocessError) as error:
            return str(error)
    if done.returncode == 0:
        return None
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
