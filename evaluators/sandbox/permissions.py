"""What a worker may read and write: the interpreter, compilers, libraries and its own directory.

One allow-list serves both guards: Landlock's rules inside the worker, and bubblewrap's mounts around it. It has neither
the user's home nor other temporary files, the archive or the judge's own sources.
"""

import os
import shutil
import site
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.sandbox.gpu import find_gpu, special_files

#: Folders of the operating system, without /proc, /sys and /dev.
_SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin", "/opt", "/nix/store")
#: What programs and libraries read in /etc: the loader, names of users and hosts, the time zone, links to programs,
#: OpenSSL's and Python's configuration.
_ETC = (
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld.so.preload", "alternatives", "ssl/openssl.cnf", "python3*"),
    *("nsswitch.conf", "passwd", "group", "hosts", "host.conf", "resolv.conf", "localtime", "timezone", "os-release"),
    *("mime.types", "locale.alias", "terminfo", "crypto-policies", "pki/tls/openssl.cnf", "OpenCL", "nvidia"),
)
#: Facts about the machine. The rest of /proc is about other processes, that of /sys for its administrator.
_PROC = (
    *("cgroups", "cpuinfo", "devices", "driver", "filesystems", "loadavg", "meminfo", "misc", "modules", "self"),
    *("stat", "swaps", "sys", "uptime", "version", "vmstat", "zoneinfo"),
)
_SYS = ("bus", "class", "dev", "devices", "fs/cgroup", "hypervisor", "kernel/mm", "module")
#: Programs that build kernels. Each brings its toolkit: the folder above the program's bin.
_PROGRAMS = ("c++", "g++", "gcc", "cc", "clang++", "nvcc", "ninja", "ld")
#: The variable of Hugging Face that names a folder of models. Where the user sets it, kernels may read these models, as
#: those of KernelBench's level 4 must.
MODELS = "HF_HUB_CACHE"
#: Variables that name such a program, folders of toolkits, and lists of folders.
PROGRAM_VARIABLES = ("CXX", "CC", "NVCC", "CUDAHOSTCXX", "TRITON_PTXAS_PATH")
FOLDER_VARIABLES = ("CUDA_HOME", "CUDA_PATH", MODELS)
LIST_VARIABLES = ("LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "PYTHONPATH")
#: The parts of a Python or a toolkit, for one that is installed directly into a home directory.
_PARTS = ("bin", "include", "lib", "lib64", "libexec", "share")

#: Special files that every process may use. The others include disks and raw memory.
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")

#: CUDA's driver writes the names of its threads here; without it cuInit fails with error 304. The worker resolves the
#: path, so it is the worker's own.
_THREADS = "/proc/self/task"

#: The checkout, or the installed package.
OURS = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Permissions:
    """Parts of the file system that a worker may use."""

    #: Read, list and execute, with everything below except what is `hidden`.
    roots: tuple[Path, ...]
    #: Not readable although below a root. A root inside it is readable all the same.
    hidden: tuple[Path, ...]
    #: Special files: read, write, control.
    devices: tuple[Path, ...]
    #: Parts of the process's own folder in /proc, in which everything is allowed.
    own: tuple[str, ...] = ()
    #: Folders in which everything is allowed.
    writable: tuple[Path, ...]

    def for_landlock(self) -> dict[str, list[str]]:
        """Paths by kind of right. A root that contains something hidden is replaced by its other parts."""
        readable = [*(f"/proc/{name}" for name in _PROC), *(f"/sys/{name}" for name in _SYS)]
        listable = ["/proc", "/sys"]
        for root in self.roots:
            for path, whole in _around(root, self.hidden):
                (readable if whole else listable).append(str(path))
        return {
            "readable": readable,
            "listable": listable,
            "devices": [str(path) for path in self.devices],
            "writable": [*map(str, self.writable), *self.own],
        }


def permissions_for(
    device: Device | None, directory: Path, program: Path, environment: Mapping[str, str]
) -> Permissions:
    """The permissions of a worker or a compiler.

    Args:
        device: of several GPUs the worker can open only this one. None for a process without a device.
        directory: its own, writable.
        program: the folder of the worker program.
        environment: the judge's, which names compilers and libraries.
    """
    home, temporary = Path.home().resolve(), Path(tempfile.gettempdir()).resolve()
    private = (home, temporary)
    roots = [*map(Path, _SYSTEM), *(path for name in _ETC for path in Path("/etc").glob(name)), program]
    for folder in (*_interpreter(), *_toolkits(environment)):
        roots += [folder / part for part in _PARTS] if _contains(folder, private) else [folder]
    # The user wrote these lists, but a home or a checkout on a search path is no permission to read all of it.
    roots += [folder for folder in _listed(environment) if not _contains(folder, private)]
    devices = [Path(path) for path in DEVICES]
    own: tuple[str, ...] = ()
    if device is not None and device.type == "cuda":
        devices += special_files(find_gpu(device))
        own = (_THREADS,)
    present = dict.fromkeys(path for path in roots if path.exists())
    return Permissions(
        roots=tuple(present), hidden=(OURS, *private), devices=tuple(devices), own=own, writable=(directory,)
    )


def search_path(inherited: Mapping[str, str]) -> list[str]:
    """The folders of PYTHONPATH, absolute, without our own checkout, which a worker does not need."""
    folders = [Path(entry).resolve() for entry in inherited.get("PYTHONPATH", "").split(os.pathsep) if entry]
    return [str(folder) for folder in folders if folder != OURS]


def _interpreter() -> Iterator[Path]:
    yield Path(sys.prefix)
    yield Path(sys.base_prefix)
    for folder in (*site.getsitepackages(), site.getusersitepackages(), *sys.path):
        if Path(folder).name in {"site-packages", "dist-packages"}:
            yield Path(folder)
    for package in ("torch", "triton"):
        found = find_spec(package)
        for folder in (found.submodule_search_locations if found else None) or ():
            yield Path(folder).parent


def _toolkits(environment: Mapping[str, str]) -> Iterator[Path]:
    named = [environment[name].split()[0] for name in PROGRAM_VARIABLES if environment.get(name, "").strip()]
    for name in (*named, *_PROGRAMS):
        found = shutil.which(name)
        if found:
            program = Path(found).resolve()
            yield program.parent.parent if program.parent.name == "bin" else program.parent
    yield from (Path(environment[name]) for name in FOLDER_VARIABLES if environment.get(name))


def _listed(environment: Mapping[str, str]) -> Iterator[Path]:
    for name in LIST_VARIABLES:
        yield from (Path(entry).resolve() for entry in environment.get(name, "").split(os.pathsep) if entry)


def _contains(folder: Path, others: Iterable[Path]) -> bool:
    return any(other.is_relative_to(folder.resolve()) for other in others)


def _around(root: Path, hidden: tuple[Path, ...]) -> Iterator[tuple[Path, bool]]:
    """Paths that together make `root` readable except the hidden parts, and whether each is readable as a whole."""
    resolved = root.resolve()
    if not _contains(resolved, hidden):
        yield root, True
    elif resolved not in hidden:
        yield root, False
        for child in resolved.iterdir():
            yield from _around(child, hidden)
