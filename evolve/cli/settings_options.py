"""The options that change settings, and the overrides that they stand for."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, get_args

import click

from kbevolve.configs.errors import UsageError
from kbevolve.configs.settings import Precision, Settings, parse_override
from kbevolve.evolve.runs.evaluators import JudgeDevices
from kbevolve.evolve.runs.settings import settings_and_devices
from kbevolve.evolve.strategies import STRATEGIES

#: Option -> setting that it is short for.
_SETTINGS = {
    "max_evaluations": "budget.evaluations",
    "max_device_seconds": "budget.device_seconds",
    "max_dollars": "budget.dollars",
    "max_tokens": "budget.tokens",
    "max_wall": "budget.wall_seconds",
    "target_speedup": "budget.target_speedup",
    "roofline_share": "budget.roofline_share",
    "strategy": "search.strategy",
    "generations": "search.generations",
    "islands": "search.islands",
    "seed": "search.seed",
    "device": "device",
    "devices": "work.devices",
    "workers": "work.workers",
    "precision": "evaluation.precision",
    "allow_library": "evaluation.allow_library",
    "force": "evaluation.force",
    "baselines": "evaluation.baselines",
    "api_base": "llm.api_base",
    "provider": "llm.provider",
    "starts": "starts",
}


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
    """The choice that options make; `short` are those of `_SETTINGS`, and ``models``.

    Raises:
        UsageError: two of them contradict each other.
    """
    device, devices, workers = (short.get(name) for name in ("device", "devices", "workers"))
    if device and devices:
        raise UsageError("both --device and --devices: one names the device, the other several; give one")
    if device and workers == "ray":
        raise UsageError(
            f"--device {device} is a device of this machine, but Ray chooses the machines; name the kind of device, "
            "e.g. --devices cpu"
        )
    overrides = dict(parse_override(text) for text in assignments)
    overrides.update(short.pop("models", None) or {})
    overrides.update({_SETTINGS[name]: value for name, value in short.items() if value not in (None, ())})
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


device_option = click.option(
    "--device",
    default=None,
    metavar="DEVICE",
    help="auto (CUDA if there is a CUDA device, else the CPU), cpu, cuda or cuda:N.  [default: auto]",
)
precision_option = click.option(
    "--precision", type=click.Choice(get_args(Precision)), help="Precision of the task.  [default: fp32]"
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
    click.option("--max-evaluations", type=int, help="Stop after so many judged kernels."),
    click.option("--max-device-seconds", type=float, help="Stop after so many seconds of evaluations on devices."),
    click.option("--max-dollars", type=float, help="Stop at this cost of models; refused if a price is unknown."),
    click.option("--max-tokens", type=int, help="Stop after so many tokens, sent and received."),
    click.option(
        "--max-wall", metavar="DURATION", callback=_seconds, help="Stop after 90s, 20m or 3h, over all sessions."
    ),
    click.option("--target-speedup", type=float, help="Stop when this speedup over eager is confirmed."),
    click.option("--roofline-share", type=float, help="Stop when the best kernel reaches this share of the roofline."),
)
#: Where and how kernels are judged; for `evaluate`, too.
_JUDGE_OPTIONS = (
    device_option,
    click.option(
        "--devices",
        default=None,
        metavar="LIST",
        callback=_listed,
        help="Devices that judge in parallel, e.g. cuda:0,cuda:1, or all.  [default: the one of --device]",
    ),
    click.option(
        "--workers",
        type=click.Choice(["local", "ray"]),
        help="local for this machine, ray for a Ray cluster (pip install 'kbevolve[ray]').  [default: local]",
    ),
    precision_option,
    click.option(
        "--allow-library",
        type=click.Choice(["full", "partial", "none"]),
        help="Torch's compute operations in a kernel: full for any, partial for all but the heavy ones (matmul, "
        "convolution, attention), none for no operation.  [default: full]",
    ),
    click.option(
        "--force",
        is_flag=True,
        default=None,
        help="Judge kernels of a problem even if answers that ignore its input would pass.",
    ),
    click.option("--preset", help="Settings to start from: cpu, default, smoke."),
    click.option("--config", type=click.Path(dir_okay=False, path_type=Path), help="A YAML file of settings."),
    click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE", help="Any other setting."),
)
_SEARCH_OPTIONS = (
    click.option(
        "--strategy",
        type=click.Choice(list(STRATEGIES)),
        help="How parents and operators are chosen; all but the first are for comparison.  [default: evolve]",
    ),
    click.option("--generations", type=int, help="Generations to reach; each island creates one child in each."),
    *budget_options,
    click.option("--islands", type=int, help="Number of islands.  [default: depends on --max-evaluations]"),
    click.option("--seed", type=int, help="Seed of the search; the same seed repeats the same choices."),
    click.option(
        "--baselines/--no-baselines",
        default=None,
        help="At the end, also time torch.compile, and eager in a CUDA graph.  [default: baselines]",
    ),
    model_option,
    click.option("--api-base", help="OpenAI-compatible endpoint, e.g. http://127.0.0.1:8000/v1."),
    click.option("--provider", help="openai, claude_code or copilot_cli."),
    click.option(
        "--start",
        "starts",
        multiple=True,
        type=click.Path(dir_okay=False, path_type=Path),
        help="A ModelNew file to start from; repeat the option for several.",
    ),
)


def judge_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options of where and how kernels are judged; the command gets them as one `choice`."""
    return _with_options(command, _JUDGE_OPTIONS)


def settings_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """All options that change settings; the command gets them as one `choice`."""
    return _with_options(command, (*_SEARCH_OPTIONS, *_JUDGE_OPTIONS))


def _with_options(
    command: Callable[..., Any], options: tuple[Callable[[Callable[..., Any]], Callable[..., Any]], ...]
) -> Callable[..., Any]:
    names: list[str] = []

    @wraps(command)
    def called(**given: Any) -> Any:
        return command(choice=choice_of(**{name: given.pop(name) for name in names}), **given)

    decorated: Callable[..., Any] = called
    others = len(getattr(command, "__click_params__", ()))  # options of the command's own
    for option in reversed(options):
        decorated = option(decorated)
    names += [parameter.name for parameter in getattr(decorated, "__click_params__", ())[others:]]
    return decorated
