"""Command-line options that several commands share."""

import re
from pathlib import Path
from typing import Any

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


json_line_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object, in one line, last on standard output."
)

library_option = click.option(
    "--allow-library",
    type=click.Choice(["full", "partial", "none"]),
    help="Torch's compute operations in a kernel: full for any, partial for all but the heavy ones (matmul, "
    "convolution, attention), none for a kernel that computes everything itself.  [default: full]",
)


def _weighted(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> dict[str, Any]:
    """``NAME`` and ``NAME=WEIGHT`` as settings. They take the place of whatever models the settings name."""
    models = []
    for text in texts:
        name, _, weight = text.rpartition("=") if "=" in text else (text, "", "1")
        try:
            models.append({"name": name, "weight": float(weight)})
        except ValueError:
            raise click.BadParameter(
                f"{text}: {weight!r} is no weight; write NAME or NAME=WEIGHT, e.g. {name}=2"
            ) from None
    if len(models) < 2:
        return {"llm.model": models[0]["name"], "llm.models": []} if models else {}
    return {"llm.model": None, "llm.models": models}


model_option = click.option(
    "--model",
    "models",
    multiple=True,
    metavar="NAME[=WEIGHT]",
    callback=_weighted,
    help="Model that writes children, e.g. gpt-5; without one, only tunables change. Given again, several models share "
    "the children by their weights.  [default weight: 1]",
)

record_option = click.option(
    "--record",
    "record_to",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Keep what the models answer in FILE, for --replay.",
)

replay_option = click.option(
    "--replay",
    "replay_from",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Take the answers from FILE instead of a model; no key and no network is needed. Replay in the archive of the "
    "recorded run: what it measured is in the prompts.",
)

force_option = click.option(
    "--force",
    is_flag=True,
    default=None,
    help="Judge kernels of a problem although answers that ignore its input would pass.",
)


#: Seconds of each unit of a duration.
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def _seconds(context: click.Context, parameter: click.Parameter, text: str | None) -> float | None:
    """A duration such as 90s, 20m, 3h or 1h30m, as seconds; a bare number is seconds."""
    if text is None:
        return None
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise click.BadParameter(f"{text!r} is no duration; write 90s, 20m, 3h or 1h30m", context, parameter)
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


#: Option -> setting that it is short for.
BUDGET_SHORT = {
    "max_evaluations": "budget.evaluations",
    "max_device_seconds": "budget.device_seconds",
    "max_dollars": "budget.dollars",
    "max_tokens": "budget.tokens",
    "max_wall": "budget.wall_seconds",
    "target_speedup": "budget.target_speedup",
    "roofline_share": "budget.roofline_share",
}
budget_options = (
    click.option("--max-evaluations", type=int, help="Stop when so many kernels were judged."),
    click.option("--max-device-seconds", type=float, help="Stop when evaluations kept devices busy for so long."),
    click.option("--max-dollars", type=float, help="Stop when models cost so much; refused where no price is known."),
    click.option("--max-tokens", type=int, help="Stop when so many tokens were sent and received."),
    click.option(
        "--max-wall",
        metavar="DURATION",
        callback=_seconds,
        help="Stop after 90s, 20m or 3h of work, all sittings together.",
    ),
    click.option("--target-speedup", type=float, help="Stop when a speedup over eager of so much is confirmed."),
    click.option("--roofline-share", type=float, help="Stop when the best kernel reaches this share of the roofline."),
)


def archive_words(path: Path) -> str:
    """`` --archive FILE`` for a command that is shown, "" where it is the default."""
    return "" if path == DEFAULT_ARCHIVE else f" --archive {path}"
