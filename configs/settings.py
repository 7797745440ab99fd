"""The settings of a run: one frozen tree of settings, put together from trees of which later ones win.

`configs.layers` says where these come from. An unknown name is an error that names the nearest known one. API keys are
never settings: they are read from the environment where they are used.
"""

from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import BaseModel, Field, ValidationError, model_validator

from kbevolve.configs.errors import SettingsError, nearest
from kbevolve.configs.sections import (
    BudgetSettings,
    EvaluationSettings,
    Feedback,
    KernelBenchSettings,
    Language,
    Libraries,
    LLMSettings,
    ModelSettings,
    Precision,
    SearchSettings,
    Section,
    Shots,
    Tracker,
    WorkSettings,
)
from kbevolve.configs.text_file import read_yaml

__all__ = [
    "BudgetSettings",
    "EvaluationSettings",
    "Feedback",
    "KernelBenchSettings",
    "LLMSettings",
    "Language",
    "Libraries",
    "ModelSettings",
    "Precision",
    "SearchSettings",
    "Settings",
    "Shots",
    "Tracker",
    "WorkSettings",
    "islands_for",
    "parse_override",
    "preset_names",
]


class Settings(Section):
    """Everything that is asked of one run, except the problem."""

    #: "auto" (CUDA when there is one, else the CPU), "cpu", "cuda" or "cuda:N".
    device: str = Field("auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$")
    #: "auto" (an LLM when one is configured, else tunables), "tunables", "llm", "ask" (people and agents, through
    #: `kbevolve ask` and `kbevolve tell`; a named model answers the rest), or a dotted name such as
    #: "package.module:Class" of a third party's `Proposer`.
    proposer: str = "auto"
    #: ModelNew files to start from, beside those that come with kbevolve.
    starts: tuple[Path, ...] = ()
    #: Whether starting kernels are generated: torch.compile's, and one from templates. It takes seconds once a run.
    inductor_seed: bool = True
    #: Trackers of experiments that `kbevolve run` and `resume` report to: "wandb", "mlflow", "tensorboard".
    trackers: tuple[Tracker, ...] = ()
    search: SearchSettings = SearchSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    work: WorkSettings = WorkSettings()
    budget: BudgetSettings = BudgetSettings()
    llm: LLMSettings = LLMSettings()
    kernelbench: KernelBenchSettings = KernelBenchSettings()

    @model_validator(mode="before")
    @classmethod
    def _fit_to_budget(cls, tree: Any) -> Any:
        """Defaults for a run with limited evaluations: fewer islands, and as many generations as one island may need.

        The limit that was given is then the one that stops the run."""
        if not isinstance(tree, Mapping) or not isinstance(tree.get("budget", {}), Mapping):
            return tree
        search, evaluations = tree.get("search", {}), tree.get("budget", {}).get("evaluations")
        if not isinstance(search, Mapping) or not isinstance(evaluations, int) or evaluations < 1:
            return tree  # no limit, or a wrong value, which the fields refuse
        fitted = {"islands": islands_for(evaluations), "generations": max(50, evaluations)}
        return {**tree, "search": {**fitted, **search}}

    @classmethod
    def load(
        cls,
        *,
        base: Mapping[str, Any] | None = None,
        preset: str | None = None,
        file: Path | None = None,
        overrides: Mapping[str, Any] | None = None,
    ) -> Self:
        """Settings from a tree, then a preset, then a YAML file, then overrides given as ``{"section.name": value}``.

        Raises:
            SettingsError: an unknown preset or setting, an unreadable file, or a value that is not allowed.
        """
        tree: dict[str, Any] = {}
        _merge(tree, base or {})
        if preset is not None:
            _merge(tree, cls.preset(preset))
        if file is not None:
            _merge(tree, read_settings(file))
        for dotted, value in (overrides or {}).items():
            _merge(tree, nested(dotted, value))
        return cls.from_tree(tree)

    @classmethod
    def merged(cls, trees: Iterable[Mapping[str, Any]]) -> Self:
        """Settings from trees, of which later ones win.

        Raises:
            SettingsError: an unknown setting or a value that is not allowed.
        """
        tree: dict[str, Any] = {}
        for one in trees:
            _merge(tree, one)
        return cls.from_tree(tree)

    @staticmethod
    def preset(name: str) -> dict[str, Any]:
        """The tree of a preset, as `load` takes it for `base`.

        Raises:
            SettingsError: there is no such preset.
        """
        if name not in preset_names():
            raise SettingsError(f"no preset {name!r}. {nearest(name, preset_names())}")
        tree: dict[str, Any] = yaml.safe_load(files(__package__).joinpath("presets", f"{name}.yaml").read_text())
        return tree

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any]) -> Self:
        """Settings from nested dictionaries.

        Raises:
            SettingsError: an unknown setting or a value that is not allowed.
        """
        try:
            return cls.model_validate(tree)
        except ValidationError as error:
            raise SettingsError(_explain(error)) from None

    @classmethod
    def names(cls) -> list[str]:
        """All settings, dotted: ``device``, ``search.islands``, …"""
        return list(_dotted_names(cls))


def islands_for(evaluations: int) -> int:
    """The number of islands for a budget of evaluations.

    At 150 evaluations one to three islands do equally well and five do worse; at 300 all do equally well.
    """
    if evaluations < 150:
        return 1
    return 2 if evaluations < 400 else 4


def preset_names() -> list[str]:
    """Presets that come with kbevolve."""
    return sorted(entry.name.removesuffix(".yaml") for entry in files(__package__).joinpath("presets").iterdir())


def parse_override(text: str) -> tuple[str, Any]:
    """``"search.islands=2"`` as a name and a value read as YAML.

    Raises:
        SettingsError: there is no ``=``.
    """
    name, equals, value = text.partition("=")
    if not equals:
        raise SettingsError(f"--set {text}: no '='; write --set search.islands=2")
    return name.strip(), yaml.safe_load(value)


def read_settings(file: Path) -> dict[str, Any]:
    """The tree of a YAML file.

    Raises:
        SettingsError: it cannot be read, is not YAML, or holds no mapping.
    """
    tree = read_yaml(file, option="--config", wants="YAML file of settings")
    if not isinstance(tree, dict | None):
        raise SettingsError(f"{file}: holds a {type(tree).__name__}; settings are `name: value` lines")
    return tree or {}


def nested(name: str, value: Any) -> dict[str, Any]:
    """``{"search": {"islands": 2}}`` for ``search.islands``."""
    first, dot, rest = name.partition(".")
    return {first: nested(rest, value) if dot else value}


def _merge(tree: dict[str, Any], other: Mapping[str, Any]) -> None:
    for name, value in other.items():
        if isinstance(value, Mapping) and isinstance(tree.get(name), dict):
            _merge(tree[name], value)
        else:
            tree[name] = dict(value) if isinstance(value, Mapping) else value


def _dotted_names(section: type[BaseModel], prefix: str = "") -> Iterable[str]:
    for name, info in section.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, Section):
            yield from _dotted_names(info.annotation, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _explain(error: ValidationError) -> str:
    """The first complaint, in one line, with the nearest setting when the name is unknown."""
    first = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        near = nearest(name, Settings.names())
        return f"no setting {name!r}. {near} `kbevolve settings` lists all."
    message = first["msg"]
    if name == "device":
        message = "There are auto, cpu, cuda and cuda:NUMBER"
    return f"{name} = {first['input']!r}: {message[0].lower()}{message[1:]}"
