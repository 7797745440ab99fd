"""What the user asks for: one frozen tree of settings, read from a preset, a YAML file and command-line overrides.

Later sources win: defaults < preset < file < ``--set section.name=value``. An unknown name is an error that
names the nearest known one. API keys are never settings: they are read from the environment where they are used.
"""

from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import (
    BaseModel,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from kbevolve.configs.errors import SettingsError, nearest
from kbevolve.configs.section import Address, Section
from kbevolve.configs.text_file import read_text

Precision = Literal["fp32", "tf32", "fp16", "bf16"]
#: What a model may be told of a kernel that it wrote: its source, how it fared, where its time goes.
Feedback = Literal["generation", "execution", "profiler"]


class SearchSettings(Section):
    """How the islands breed."""

    #: How children come about (docs/strategies.md): "evolve" is what all other settings here are for.
    strategy: Literal["evolve", "best-of-n", "refine", "greedy", "tree", "openevolve"] = "evolve"
    #: What `refine` feeds back of its last child: its source ("generation"), verdict, message and speed ("execution"),
    #: and where its time goes ("profiler").
    feedback: tuple[Feedback, ...] = ("generation", "execution", "profiler")
    #: Ideas of a round of `tree`, and implementations of each.
    tree_ideas: int = Field(4, ge=1, le=64)
    tree_implementations: int = Field(2, ge=1, le=64)
    #: Generations after the starting kernels; in each, every island bears one child.
    generations: int = Field(50, ge=0)
    #: Number of islands. Where budget.evaluations is given and this is not: 1 below 150 of them, 2 below 400, else 4.
    islands: int = Field(4, ge=1, le=64)
    #: Every so many generations each island sends its best kernel to the next one of the ring; 0 never.
    migration_every: int = Field(10, ge=0)
    #: Exponent of the rank law: parents are drawn with weight (rank+1)**-pressure. None: 20, so that it is the best,
    #: where a model writes, 1.5 where only tunables change.
    selection_pressure: float | None = Field(None, ge=0)
    #: How much each child so far lowers its parent's weight: weight / (1 + discount * children).
    child_discount: float = Field(0.3, ge=0)
    #: Repair turns after a child that failed, with the failure's message (LLM only).
    repair_turns: int = Field(1, ge=0, le=5)
    #: How a run with an LLM chooses between edits, rewrites, crossings and tuning: "shares" by shares that change while
    #: nothing better comes, "credit" by what each has brought, too.
    operator_choice: Literal["credit", "shares"] = "shares"
    #: Share of children made by other tunable values when an LLM is configured (without one: all of them), among those
    #: that are not chosen by credit, while nothing better comes. 0: none.
    tune_share: float = Field(0.3, ge=0, le=1)
    #: Share of the run's evaluations, and at least 25, that may pass without an improvement of 1 % before it explores;
    #: as many again before it goes back, and as many again before it stops. 0: it goes on as it is.
    patience: float = Field(0.2, ge=0, le=1)
    #: Begin with what other problems of the archive taught: credit of techniques, and the best kernels of similar ones.
    transfer: bool = True
    #: Seed of every random choice of the search (not of the judge's secret inputs).
    seed: int = 0
    #: Generations that may be under way beside the one that is being bred: children of generation g know what was found
    #: up to generation g - 1 - lookahead. 0 waits for every verdict; more keeps devices busy. A run depends on this
    #: number and never on how many devices there are or how fast they are.
    lookahead: int = Field(0, ge=0, le=16)


class EvaluationSettings(Section):
    """How a kernel is judged."""

    #: Precision the task asks for; decides the accepted error and both backends' TF32 flags.
    precision: Precision = "fp32"
    #: Correctness trials, over the input distributions in turn.
    trials: int = Field(7, ge=1)
    #: Untimed calls before timing.
    warmup: int = Field(3, ge=0)
    #: Paired rounds: at least, at most, and timed calls in each block of a round (10 x 10 = KernelBench's 100 trials).
    least_rounds: int = Field(5, ge=3)
    rounds: int = Field(25, ge=3)
    calls_per_round: int = Field(10, ge=1)
    #: Rounds end when the 95 % interval of the speedup is at most this far from it on either side.
    interval: float = Field(0.0025, gt=0)
    #: Differences up to this share are a tie, whatever the interval says. Processes that run the same kernel differ
    #: by 0.07 % (standard deviation) on an H200; where they differ more, the tie grows with it.
    tie: float = Field(0.005, ge=0)
    #: Rounds of a fresh confirmation of a new champion, and how many of the run's best meet at its end; 0 for neither.
    confirm_rounds: int = Field(15, ge=0)
    finalists: int = Field(5, ge=0)
    #: Seconds that all timed calls of the kernel may take together; a slow kernel gets fewer calls, at least one in
    #: each of 3 rounds.
    timing_seconds: float = Field(10.0, gt=0)
    #: Torch's own compute operations (matmul, conv, …) in a kernel: "full" for any, "partial" for all but the
    #: heavy ones, "none" for a kernel that computes everything itself.
    allow_library: Literal["full", "partial", "none"] = "full"
    #: Whether a kernel may keep weights in a form of its own, which weights changed in place would not reach.
    allow_prepacked: bool = True
    #: Judge kernels of a problem although its card says that answers which ignore the input would pass.
    force: bool = False
    #: Time torch.compile and eager in a CUDA graph as well, once for each problem and device.
    baselines: bool = True
    #: Ask the profiler where a correct kernel's time goes (CUDA only).
    profile: bool = True
    #: Connections of a worker's CUDA context to the device, for kernels that use one stream; 0 for the driver's number.
    #: Contexts of few are made and ended faster. Contests, and what may use several streams, have the driver's number.
    connections: int = Field(1, ge=0, le=32)
    #: Time limits, seconds: compiling, importing, each call or block of calls, the whole evaluation.
    build_seconds: float = Field(180.0, gt=0)
    import_seconds: float = Field(60.0, gt=0)
    run_seconds: float = Field(30.0, gt=0)
    total_seconds: float = Field(300.0, gt=0)


class WorkSettings(Section):
    """How many hands work at once. What a run finds out does not depend on it."""

    #: "local" for the devices of this machine, "ray" for those of a Ray cluster.
    workers: Literal["local", "ray"] = "local"
    #: Devices, e.g. ("cuda:0", "cuda:1"); none for the one that `device` names, or all of a Ray cluster.
    devices: tuple[str, ...] = ()
    #: Address of a running Ray cluster ("auto", "host:port"); None starts one on this machine.
    ray_address: str | None = None
    #: Whether devices of different models may judge one run; times are compared within a device only, but what is fast
    #: on one model need not be on another.
    mixed_devices: bool = False
    #: Kernels built and tried at once for each device, of which one is timed; 0 for what cores and memory allow.
    width: int = Field(0, ge=0, le=64)
    #: Compilers that run at once; 0 for all cores but those that a device being timed needs.
    builders: int = Field(0, ge=0, le=512)


class ModelSettings(Section):
    """One of several models that write children. What is None is as `LLMSettings` has it."""

    #: Model name as the endpoint knows it.
    name: str = Field(min_length=1)
    #: Children are shared out in proportion to the weights.
    weight: float = Field(1.0, gt=0, allow_inf_nan=False)
    api_base: Address = None
    api_key_variable: str | None = None
    temperature: float | None = Field(None, ge=0, le=2)
    max_tokens: int | None = Field(None, ge=256)


class BudgetSettings(Section):
    """What a run may cost, and when it is good enough; None for no limit. The first limit that is reached stops it.

    Limits count the whole run, all its sittings together, and are looked at between generations: what is under way then
    finishes and counts. `search.generations` is a limit, too.
    """

    #: Kernels judged for this run.
    evaluations: int | None = Field(None, ge=1)
    #: Count kernels that another run of the archive had judged before as if they were judged for this one: then runs in
    #: one archive have equal budgets whichever was first.
    known_evaluations: bool = False
    #: Seconds that evaluations kept a device busy, several at once counted each; contests are not in it.
    device_seconds: float | None = Field(None, gt=0, allow_inf_nan=False)
    #: Dollars for models at the prices of `configs/prices.yaml`; a model without a price is refused.
    dollars: float | None = Field(None, gt=0, allow_inf_nan=False)
    #: Tokens sent and received.
    tokens: int | None = Field(None, ge=1)
    #: Seconds of all sittings together, the pauses between them left out.
    wall_seconds: float | None = Field(None, gt=0, allow_inf_nan=False)
    #: Speedup over eager that is enough, once it is confirmed.
    target_speedup: float | None = Field(None, gt=0, allow_inf_nan=False)
    #: Share of the roofline that is enough, of the best kernel, where the judge knows it (CUDA only).
    roofline_share: float | None = Field(None, gt=0, le=1)
    #: A YAML file of your own prices, in the form of `configs/prices.yaml`; they win over those.
    prices: Path | None = None


class LLMSettings(Section):
    """Which model writes children; none by default, then the tunables proposer works alone."""

    #: Model name as the endpoint knows it, None for no model.
    model: str | None = None
    #: Several models instead of the one, each with a name of its own; () for the one.
    models: tuple[ModelSettings, ...] = ()
    #: Which of several models writes a child: "weights" by their weights alone, "bandit" by what each has brought, for
    #: a dollar where all their prices are known.
    model_choice: Literal["weights", "bandit"] = "weights"
    #: "openai" (any OpenAI-compatible endpoint), "claude_code" or "copilot_cli". Settings of older runs may name
    #: "manual", which no longer exists: they load, but no model can be built from them.
    provider: Literal["openai", "claude_code", "copilot_cli", "manual"] = "openai"
    #: Base address of the endpoint, e.g. http://127.0.0.1:8000/v1; None for the provider's own.
    api_base: Address = None
    #: Name of the environment variable that holds the key.
    api_key_variable: str = "OPENAI_API_KEY"
    #: At which models answer; an island that ventures asks at a quarter more (`islands.policy`).
    temperature: float = Field(0.8, ge=0, le=2)
    max_tokens: int = Field(16000, ge=256)
    #: Seconds a request may take, and how often a failed one is tried again.
    timeout: float = Field(300.0, gt=0)
    retries: int = Field(4, ge=0)
    #: Requests that are begun in a minute, evenly spread, and requests under way at once; of all models together. None
    #: for no limit: then there is at most one request for each child that is under way.
    requests_per_minute: float | None = Field(None, gt=0, allow_inf_nan=False)
    parallel: int | None = Field(None, ge=1)
    #: Ideas asked for at once.
    ideas_per_call: int = Field(4, ge=1, le=16)

    @model_validator(mode="before")
    @classmethod
    def _without_removed(cls, tree: Any) -> Any:
        """Settings of older runs name `manual_dir`, the directory of the provider "manual"."""
        return {name: tree[name] for name in tree if name != "manual_dir"} if isinstance(tree, Mapping) else tree

    @field_validator("models")
    @classmethod
    def _tell_apart(cls, models: tuple[ModelSettings, ...], others: ValidationInfo) -> tuple[ModelSettings, ...]:
        names = [model.name for model in models]
        if models and others.data.get("model") is not None:
            raise PydanticCustomError("two_ways", "llm.model names one model and llm.models names several; set one")
        if len(set(names)) < len(names):
            raise PydanticCustomError("twice", "A name is there twice; an archive tells models apart by their names")
        return models

    def each(self) -> "tuple[LLMSettings, ...]":
        """The settings of every model by itself, as if it were the only one; those of no model count as one."""
        return tuple(self._only(model) for model in self.models) or (self,)

    def _only(self, model: ModelSettings) -> "LLMSettings":
        own = ("api_base", "api_key_variable", "temperature", "max_tokens")
        given = {name: value for name in own if (value := getattr(model, name)) is not None}
        return self.model_copy(update={"model": model.name, "models": (), **given})


class Settings(Section):
    """Everything that is asked of one run, except the problem."""

    #: "auto" (CUDA when there is one, else the CPU), "cpu", "cuda" or "cuda:N".
    device: str = Field("auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$")
    #: "auto" (an LLM when one is configured, else tunables), "tunables", "llm", "ask" (whoever `kbevolve ask` asks; a
    #: model, when one is named, answers what nobody has told), or a dotted name such as "package.module:Class" of a
    #: third party's `Proposer`.
    proposer: str = "auto"
    #: ModelNew files to start from, beside those that come with kbevolve.
    starts: tuple[Path, ...] = ()
    #: Ask torch.compile for a starting kernel. It costs some seconds once a run.
    inductor_seed: bool = True
    search: SearchSettings = SearchSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    work: WorkSettings = WorkSettings()
    budget: BudgetSettings = BudgetSettings()
    llm: LLMSettings = LLMSettings()

    @model_validator(mode="before")
    @classmethod
    def _fit_to_budget(cls, tree: Any) -> Any:
        """Where evaluations are limited, they decide how many islands share them, and how many generations there may
        be: as many as one island may need, so that the limit that was given is the one that stops the run."""
        if not isinstance(tree, Mapping) or not isinstance(tree.get("budget", {}), Mapping):
            return tree
        search, evaluations = tree.get("search", {}), tree.get("budget", {}).get("evaluations")
        if not isinstance(search, Mapping) or not isinstance(evaluations, int) or evaluations < 1:
            return tree  # nothing to fit, or wrong: then the fields themselves complain
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
            _merge(tree, _read_preset(preset))
        if file is not None:
            _merge(tree, _read_yaml(file))
        for dotted, value in (overrides or {}).items():
            _merge(tree, _nested(dotted.split("."), value))
        return cls.from_tree(tree)

    @staticmethod
    def preset(name: str) -> dict[str, Any]:
        """The tree of a preset, as `load` takes it for `base`.

        Raises:
            SettingsError: there is no such preset.
        """
        return _read_preset(name)

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
    """How many islands share so many evaluations (SEARCH section 2: at 150, one to three do as well as each other and
    five worse; at 300 they are equal)."""
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


def _read_preset(name: str) -> dict[str, Any]:
    if name not in preset_names():
        raise SettingsError(f"no preset {name!r}. {nearest(name, preset_names())}")
    return _as_tree(
        yaml.safe_load(files(__package__).joinpath("presets", f"{name}.yaml").read_text()), f"preset {name}"
    )


def _read_yaml(file: Path) -> dict[str, Any]:
    text = read_text(file, option="--config", wants="YAML file of settings", error=SettingsError)
    try:
        return _as_tree(yaml.safe_load(text), str(file))
    except yaml.YAMLError as error:
        raise SettingsError(f"{file}: not YAML: {' '.join(str(error).split())}") from None


def _as_tree(tree: Any, origin: str) -> dict[str, Any]:
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise SettingsError(f"{origin}: holds a {type(tree).__name__}; settings are `name: value` lines")
    return tree


def _nested(path: list[str], value: Any) -> dict[str, Any]:
    return {path[0]: value if len(path) == 1 else _nested(path[1:], value)}


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
        return f"no setting {name!r}. {nearest(name, Settings.names())} All of them: `kbevolve run --help`."
    return f"{name} = {first['input']!r}: {first['msg'][0].lower()}{first['msg'][1:]}"
