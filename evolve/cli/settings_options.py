"""The options that change settings, and the overrides that they stand for."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, get_args

import click

from kbevolve.configs.errors import UsageError
from kbevolve.configs.settings import Language, Precision, Settings, Tracker, parse_override, preset_names
from kbevolve.evolve.cli.completion import complete_assignments
from kbevolve.evolve.cli.options import FILE
from kbevolve.evolve.runs.evaluators import JudgeDevices
from kbevolve.evolve.runs.settings import settings_and_devices
from kbevolve.evolve.strategies import STRATEGIES

Option = Callable[[Callable[..., Any]], Callable[..., Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsChoice:
    """What the user chose on the command line."""

    preset: str | None = None
    config: Path | None = None
    #: Setting -> value, of ``--set`` and of the short options; the short ones win.
    overrides: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether no setting was chosen."""
        return not (self.preset or self.config or self.overrides)

    def load(self, defaults: Mapping[str, Any] | None = None) -> tuple[Settings, JudgeDevices]:
        """The settings of a new run, with a command's own `defaults` for overrides, and the devices of its judges.

        Raises:
            SettingsError: a name or a value that is not allowed.
            EvaluatorError: a device is missing.
        """
        overrides = {**(defaults or {}), **self.overrides}
        return settings_and_devices(preset=self.preset, config=self.config, overrides=overrides)


def choice_of(
    preset: str | None = None, config: Path | None = None, assignments: tuple[str, ...] = (), **short: Any
) -> SettingsChoice:
    """The choice that options make; `short` are settings with "__" for the dot, and ``models``.

    Raises:
        UsageError: two of them contradict each other.
    """
    device = short.get("device")
    if device and short.get("work__devices"):
        raise UsageError("both --device and --devices: one names the device, the other several; give one")
    if device and short.get("work__workers") == "ray":
        raise UsageError(
            f"--device {device} is a device of this machine, but Ray chooses the machines; name the kind of device, "
            "e.g. --devices cpu"
        )
    overrides = dict(parse_override(text) for text in assignments)
    overrides.update(short.pop("models", None) or {})
    overrides.update({name.replace("__", "."): value for name, value in short.items() if value not in (None, ())})
    return SettingsChoice(preset=preset, config=config, overrides=overrides)


def _listed(context: click.Context, parameter: click.Parameter, text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _weighted(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> dict[str, Any]:
    """``NAME`` and ``NAME=WEIGHT`` as settings; they replace all models of the settings."""
    models = []
    for text in texts:
        name, _, weight = text.rpartition("=") if "=" in text else (text, "", "1")
        try:
            models.append({"name": name, "weight": float(weight)})
        except ValueError:
            raise click.BadParameter(
                f"{text}: {weight!r} is not a weight; write NAME or NAME=WEIGHT, e.g. {name}=2"
            ) from None
    if len(models) < 2:
        return {"llm.model": models[0]["name"], "llm.models": []} if models else {}
    return {"llm.model": None, "llm.models": models}


#: Seconds of each unit of a duration.
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def _seconds(context: click.Context, parameter: click.Parameter, text: str | None) -> float | None:
    """A duration such as 90s, 20m, 3h or 1h30m, as seconds; a bare number is seconds."""
    if text is None:
        return None
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise click.BadParameter(f"{text!r} is not a duration; write 90s, 20m, 3h or 1h30m", context, parameter)
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def _setting(flag: str, setting: str, words: str, **attributes: Any) -> Option:
    """An option that is short for a setting."""
    return click.option(flag, setting.replace(".", "__"), help=words, **attributes)


device_option = click.option(
    "--device",
    metavar="DEVICE",
    help="auto (CUDA if there is a CUDA device, else the CPU), cpu, cuda or cuda:N.  [default: auto]",
)
_precisions = click.Choice(get_args(Precision))
_precision_option = _setting(
    "--precision", "evaluation.precision", "Precision of the task.  [default: fp32]", type=_precisions
)
_set_option = click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="NAME=VALUE",
    shell_complete=complete_assignments,
    help="Any other setting; `kbevolve settings` lists them.",
)
model_option = click.option(
    "--model",
    "models",
    multiple=True,
    metavar="NAME[=WEIGHT]",
    callback=_weighted,
    help="Model that writes children, e.g. gpt-5; without a model, only tunables change. Repeat the option for several "
    "models, which share the children by their weights.  [default weight: 1]",
)
budget_options = (
    _setting(
        "--max-evaluations",
        "budget.evaluations",
        "Stop after so many judged kernels; the generation under way is finished.",
        type=int,
    ),
    _setting("--max-device-seconds", "budget.device_seconds", "Stop after so many seconds on devices.", type=float),
    _setting("--max-dollars", "budget.dollars", "Stop at this cost; refused if a price is unknown.", type=float),
    _setting("--max-tokens", "budget.tokens", "Stop after so many tokens, sent and received.", type=int),
    _setting(
        "--max-wall",
        "budget.wall_seconds",
        "Stop after 90s, 20m or 3h, over all sessions. Children and kernels under way are finished, the final is held "
        "where it fits, and nothing else begins.",
        metavar="DURATION",
        callback=_seconds,
    ),
    _setting("--target-speedup", "budget.target_speedup", "Stop at this confirmed speedup over eager.", type=float),
    _setting("--roofline-share", "budget.roofline_share", "Stop at this share of the roofline.", type=float),
)
#: Where and how kernels are judged; for `evaluate`, too.
_JUDGE_OPTIONS = (
    device_option,
    _setting(
        "--devices",
        "work.devices",
        "Devices that judge in parallel, e.g. cuda:0,cuda:1, or all.  [default: the one of --device]",
        metavar="LIST",
        callback=_listed,
    ),
    _setting(
        "--workers",
        "work.workers",
        "local for this machine, ray for a Ray cluster (pip install 'kbevolve[ray]').  [default: local]",
        type=click.Choice(["local", "ray"]),
    ),
    _precision_option,
    _setting(
        "--allow-library",
        "evaluation.allow_library",
        "Torch's compute operations in a kernel: full for any, partial for all but the heavy ones (matmul, "
        "convolution, attention), none for no operation.  [default: full]",
        type=click.Choice(["full", "partial", "none"]),
    ),
    _setting(
        "--force",
        "evaluation.force",
        "Judge kernels of a problem even if answers that ignore its input would pass.",
        is_flag=True,
        default=None,
    ),
    click.option("--preset", type=click.Choice(preset_names()), help="Settings to start from."),
    click.option("--config", type=FILE, help="A YAML file of settings."),
    _set_option,
)
_SEARCH_OPTIONS = (
    _setting(
        "--strategy",
        "search.strategy",
        "How parents and operators are chosen; all but the first are for comparison.  [default: evolve]",
        type=click.Choice(list(STRATEGIES)),
    ),
    _setting(
        "--backend",
        "search.backend",
        "Language of new kernels; tilelang, cute and thunderkittens need their packages.  [default: C++ on a "
        "CPU, CUDA C++ and Triton on a GPU of NVIDIA, HIP and Triton on one of AMD]",
        type=click.Choice(["any", *get_args(Language)]),
    ),
    _setting("--generations", "search.generations", "Generations to reach; each has one child an island.", type=int),
    *budget_options,
    _setting(
        "--islands", "search.islands", "Islands.  [default: 2 on a CPU, else 1, 2 or 4 by --max-evaluations]", type=int
    ),
    _setting("--seed", "search.seed", "Seed of the search; the same seed repeats the same choices.", type=int),
    _setting(
        "--baselines/--no-baselines",
        "evaluation.baselines",
        "At the end, also time torch.compile, and eager in a CUDA graph.  [default: baselines]",
        default=None,
    ),
    model_option,
    _setting("--api-base", "llm.api_base", "OpenAI-compatible endpoint, e.g. http://127.0.0.1:8000/v1."),
    _setting("--provider", "llm.provider", "openai, claude_code or copilot_cli."),
    _setting(
        "--track",
        "trackers",
        "Report each generation to a tracker of experiments; may be given again.",
        multiple=True,
        type=click.Choice(get_args(Tracker)),
    ),
    _setting("--start", "starts", "A ModelNew file to start from; may be given again.", multiple=True, type=FILE),
)


def judge_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options of where and how kernels are judged; the command gets them as one `choice`."""
    return _with_options(command, _JUDGE_OPTIONS)


def profile_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options of how one kernel is measured; the command gets them as one `choice`."""
    return _with_options(command, (device_option, _precision_option, _set_option))


def settings_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """All options that change settings; the command gets them as one `choice`."""
    return _with_options(command, (*_SEARCH_OPTIONS, *_JUDGE_OPTIONS))


def _with_options(command: Callable[..., Any], options: tuple[Option, ...]) -> Callable[..., Any]:
    names: list[str] = []
    own = len(getattr(command, "__click_params__", ()))

    @wraps(command)
    def decorated(**given: Any) -> Any:
        return command(choice=choice_of(**{name: given.pop(name) for name in names}), **given)

    for option in reversed(options):
        option(decorated)
    names += [parameter.name for parameter in getattr(decorated, "__click_params__", ())[own:]]
    return decorated
