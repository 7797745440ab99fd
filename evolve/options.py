"""Command-line options that several commands share."""

from pathlib import Path

import click

from kbevolve.configs.errors import UsageError

#: Where the archive is when nobody says otherwise.
DEFAULT_ARCHIVE = Path("kbevolve.db")

archive_option = click.option(
    "--archive",
    "archive_path",
    type=click.Path(dir_okay=False, path_type=Path),
    default=DEFAULT_ARCHIVE,
    envvar="KBEVOLVE_ARCHIVE",
    show_default=True,
    show_envvar=True,
    help="The SQLite file that remembers everything.",
)

problem_option = click.option(
    "--problem",
    "problem_name",
    required=True,
    metavar="NAME",
    help="A built-in problem (L1/matmul), a file in KernelBench's format, or kernelbench:LEVEL/NUMBER.",
)

kernelbench_option = click.option(
    "--kernelbench",
    "kernelbench_dir",
    type=click.Path(file_okay=False, path_type=Path),
    envvar="KERNELBENCH",
    show_envvar=True,
    help="A checkout of KernelBench, for --problem kernelbench:LEVEL/NUMBER.",
)

device_option = click.option(
    "--device",
    default=None,
    metavar="DEVICE",
    help="auto (CUDA when there is one, else the CPU), cpu, cuda or cuda:N.  [default: auto]",
)


def _listed(context: click.Context, parameter: click.Parameter, text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


devices_option = click.option(
    "--devices",
    default=None,
    metavar="LIST",
    callback=_listed,
    help="Devices that judge side by side, e.g. cuda:0,cuda:1, or all.  [default: the one of --device]",
)

workers_option = click.option(
    "--workers",
    type=click.Choice(["local", "ray"]),
    help="Where they are: local for this machine, ray for a Ray cluster (pip install 'kbevolve[ray]').  "
    "[default: local]",
)


def check_devices(device: str | None, devices: list[str] | None, workers: str | None) -> None:
    """Raises UsageError: these three options contradict each other."""
    if device and devices:
        raise UsageError("both --device and --devices: one names the device, the other all of several; give one")
    if device and workers == "ray":
        raise UsageError(
            f"--device {device} is one of this machine, and Ray places judges wherever it has room; name their kind, "
            "e.g. --devices cpu"
        )


library_option = click.option(
    "--allow-library",
    type=click.Choice(["full", "partial", "none"]),
    help="Torch's compute operations in a kernel: full for any, partial for all but the heavy ones (matmul, "
    "convolution, attention), none for a kernel that computes everything itself.  [default: full]",
)

force_option = click.option(
    "--force",
    is_flag=True,
    default=None,
    help="Judge kernels of a problem although answers that ignore its input would pass.",
)


def archive_words(path: Path) -> str:
    """`` --archive FILE`` for a command that is shown, "" where it is the default."""
    return "" if path == DEFAULT_ARCHIVE else f" --archive {path}"
