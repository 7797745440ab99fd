"""The sections of the settings, one frozen class each; `configs.settings` puts them together and loads them."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError


def _without_credentials(address: str | None) -> str | None:
    """An address without user name and password: the archive must never hold them."""
    return address and re.sub(r"^(\w+://)?[^/?#]*@", r"\1", address)


#: Base address of an endpoint; None for the provider's own.
Address = Annotated[str | None, PlainSerializer(_without_credentials)]


class Section(BaseModel):
    """Base of all sections: frozen, unknown keys refused, defaults checked."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


Precision = Literal["fp32", "tf32", "fp16", "bf16"]
#: Torch's own compute operations (matmul, conv, …) in a kernel: "full" for any, "partial" for all but the heavy ones,
#: "none" for a kernel that computes everything itself.
Libraries = Literal["full", "partial", "none"]
#: What a model may see of a kernel that it wrote: its source, its verdict and speed, where its time goes.
Feedback = Literal["generation", "execution", "profiler"]
Tracker = Literal["wandb", "mlflow", "tensorboard"]
#: What kernels are written in; the values of `Backend` but torch.
Language = Literal["cpp", "cuda", "triton", "tilelang", "cute", "thunderkittens", "hip"]
#: Examples of a prompt for a new file, as KernelBench calls them.
Shots = Literal["zero_shot", "one_shot", "few_shot"]


class SearchSettings(Section):
    """How children are proposed and selected."""

    #: The search strategy (docs/strategies.md); most settings here are for "evolve".
    strategy: Literal["evolve", "best-of-n", "refine", "greedy", "tree", "openevolve"] = "evolve"
    #: What `refine` feeds back of its last child: its source ("generation"), verdict, message and speed ("execution"),
    #: and where its time goes ("profiler").
    feedback: tuple[Feedback, ...] = ("generation", "execution", "profiler")
    #: Ideas of a round of `tree`.
    tree_ideas: int = Field(4, ge=1, le=64)
    #: Implementations of each idea of `tree`.
    tree_implementations: int = Field(2, ge=1, le=64)
    #: Generations after the starting kernels; each island creates one child in each.
    generations: int = Field(50, ge=0)
    #: Language of new kernels: "cuda", "triton", "tilelang", "cute" or "thunderkittens" on a GPU of NVIDIA, "hip",
    #: "triton" or "tilelang" on one of AMD, "cpp" on a CPU; "any" for C++ and Triton of the device. Starting kernels in
    #: other languages are left out, except the reference and your own files.
    backend: Literal["any", Language] = "any"
    #: Languages of the islands in turn, in place of `search.backend`: [triton, cute] writes Triton on islands 0, 2, …
    #: and CuTe on 1, 3, …; none: several islands of a GPU write Triton, C++ of the device, and both.
    island_backends: tuple[Language, ...] = ()
    #: Number of islands. Where budget.evaluations is given and this is not: 1 below 150 of them, 2 below 400, else 4.
    islands: int = Field(4, ge=1, le=64)
    #: Every so many generations each island sends its best kernel to the next one of the ring; 0 never.
    migration_every: int = Field(10, ge=0)
    #: Exponent of the rank law: parents are drawn with weight (rank+1)**-pressure. None: 20, which picks the best, with
    #: a model; 1.5 where only tunables change.
    selection_pressure: float | None = Field(None, ge=0)
    #: How much each child so far lowers its parent's weight: weight / (1 + discount * children).
    child_discount: float = Field(0.3, ge=0)
    #: Repair turns after a child that failed, with the failure's message (LLM only).
    repair_turns: int = Field(1, ge=0, le=5)
    #: How a run with an LLM chooses between edits, rewrites, crossings and tuning: "shares" by shares that change while
    #: no improvement is found, "credit" also by the gains of each operator.
    operator_choice: Literal["credit", "shares"] = "shares"
    #: Share of tuned children when an LLM is configured (without one: all of them), among those that are not chosen by
    #: credit, while no improvement is found. 0: none.
    tune_share: float = Field(0.3, ge=0, le=1)
    #: Share of the run's evaluations, and at least 25, that may pass without an improvement of 1 % before it explores;
    #: as many again before it restarts islands, and as many again before it stops. 0: never.
    patience: float = Field(0.2, ge=0, le=1)
    #: Start with knowledge of other problems in the archive: credit of techniques, best kernels of similar problems.
    transfer: bool = True
    #: Seed of every random choice of the search (not of the judge's secret inputs).
    seed: int = 0
    #: Generations that may be under way at once, beside the oldest: children of generation g know the results up to
    #: generation g - 1 - lookahead. 0 waits for every verdict; more keeps devices busy, or has more models write at
    #: once. "auto": 0 where a model, people or a third party's proposer write children, for whom it saves calls; 4
    #: where only tunables change. A run depends on this number, and never on the number or speed of devices.
    lookahead: Literal["auto", 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16] = "auto"


class EvaluationSettings(Section):
    """How a kernel is judged."""

    #: Precision the task asks for; decides the accepted error and both backends' TF32 flags.
    precision: Precision = "fp32"
    #: Correctness trials, over the input distributions in turn.
    trials: int = Field(7, ge=1)
    #: Untimed calls before timing.
    warmup: int = Field(3, ge=0)
    #: Paired rounds at least.
    least_rounds: int = Field(5, ge=3)
    #: Paired rounds at most.
    rounds: int = Field(25, ge=3)
    #: Most timed calls in each block of a round; of calls of more than 4 ms there are fewer. 10 in 10 rounds are
    #: KernelBench's 100 trials.
    calls_per_round: int = Field(10, ge=1)
    #: Rounds end when the 95 % interval of the speedup is at most this far from it on either side. In an evaluation
    #: 0.005 suffices for a kernel that is clearly faster or slower than the reference, 0.01 behind the best one.
    interval: float = Field(0.0025, gt=0)
    #: Differences up to this share are a tie, whatever the interval says. Processes that run the same kernel differ
    #: by 0.07 % (standard deviation) on an H200; where they differ more, the tie grows with it.
    tie: float = Field(0.005, ge=0)
    #: Most rounds of the fresh measurement of a new champion; 0 for no contests.
    confirm_rounds: int = Field(15, ge=0)
    #: How many kernels the final contest compares; 0 for no final.
    finalists: int = Field(5, ge=0)
    #: Seconds that all timed calls of the kernel may take together; a slow kernel gets fewer calls, at least one in
    #: each of 3 rounds. With the reference's calls and all checks its rounds may take three times as long.
    timing_seconds: float = Field(1.0, gt=0)
    #: Which of torch's own compute operations a kernel may call (`Libraries`).
    allow_library: Libraries = "full"
    #: Whether a kernel may keep a copy of its weights in its own layout; it then misses changes in place.
    allow_prepacked: bool = True
    #: Whether a kernel may run code that the lint cannot read: computed or decoded text, code objects, machine code.
    allow_unreadable: bool = False
    #: Judge kernels of a problem although its card says that answers which ignore the input would pass.
    force: bool = False
    #: Time torch.compile and eager in a CUDA graph as well, once for each problem and device.
    baselines: bool = True
    #: Profile correct kernels (CUDA only).
    profile: bool = True
    #: CUDA_DEVICE_MAX_CONNECTIONS of a worker whose kernel uses one stream; 0 for the driver's number. A context with
    #: few starts and ends faster. Contests, and kernels that may use several streams, have the driver's number.
    connections: int = Field(1, ge=0, le=32)
    #: Seconds that compiling may take.
    build_seconds: float = Field(180.0, gt=0)
    #: Seconds that importing may take.
    import_seconds: float = Field(60.0, gt=0)
    #: Seconds that a call, or a block of calls, may take.
    run_seconds: float = Field(30.0, gt=0)
    #: Seconds that an evaluation may take.
    total_seconds: float = Field(300.0, gt=0)


class KernelBenchSettings(Section):
    """KernelBench's recipe, which `--judge kernelbench` runs for comparison. kbevolve's own judge reads none of it."""

    #: Correctness trials; all must pass.
    trials: int = Field(5, ge=1)
    #: Timed calls of the kernel and of the reference.
    timed_calls: int = Field(100, ge=1)
    #: "cuda_event", "do_bench", "do_bench_impl" or "host_time", as KernelBench calls them. On a CPU "cuda_event" is
    #: "host_time".
    timing: Literal["cuda_event", "do_bench", "do_bench_impl", "host_time"] = "cuda_event"
    #: Whether a correct kernel is timed.
    performance: bool = True
    #: Seconds that a kernel may take, and its compilers as many again.
    seconds: float = Field(180.0, gt=0)


class WorkSettings(Section):
    """How much runs at once. The results of a run do not depend on it."""

    #: "local" for the devices of this machine, "ray" for those of a Ray cluster.
    workers: Literal["local", "ray"] = "local"
    #: Devices, e.g. ("cuda:0", "cuda:1"); none for the one that `device` names, or all of a Ray cluster.
    devices: tuple[str, ...] = ()
    #: Address of a running Ray cluster ("auto", "host:port"); None starts one on this machine.
    ray_address: str | None = None
    #: Whether devices of different models may judge one run; times are compared within a device only, but a kernel
    #: that is fast on one model may be slow on another.
    mixed_devices: bool = False
    #: Kernels built and tried at once for each device, of which one is timed; 0 for what cores and memory allow.
    width: int = Field(0, ge=0, le=64)
    #: Compilers that run at once; 0 for all cores but those that a device being timed needs.
    builders: int = Field(0, ge=0, le=512)


class ModelSettings(Section):
    """One of several models that write children; None takes the value of `LLMSettings`."""

    #: Model name as the endpoint knows it.
    name: str = Field(min_length=1)
    #: Children are shared out in proportion to the weights.
    weight: float = Field(1.0, gt=0, allow_inf_nan=False)
    api_base: Address = None
    api_key_variable: str | None = None
    temperature: float | None = Field(None, ge=0, le=2)
    max_tokens: int | None = Field(None, ge=256)
    reasoning_effort: str | None = None


class BudgetSettings(Section):
    """What a run may cost, and when it is good enough; None for no limit. The first limit that is reached stops it.

    Limits count all sessions of the run together. They are checked between generations: work under way then finishes
    and counts. Only the wall time is checked before everything that begins. `search.generations` is a limit, too.
    """

    #: Kernels judged for this run.
    evaluations: int | None = Field(None, ge=1)
    #: Count kernels that another run of the archive judged before as judged for this one: runs in one archive then have
    #: equal budgets in any order.
    known_evaluations: bool = False
    #: Seconds that evaluations used a device, summed over evaluations; contests are not counted.
    device_seconds: float | None = Field(None, gt=0, allow_inf_nan=False)
    #: Dollars for models at the prices of `configs/prices.yaml`; a model without a price is refused.
    dollars: float | None = Field(None, gt=0, allow_inf_nan=False)
    #: Tokens sent and received.
    tokens: int | None = Field(None, ge=1)
    #: Seconds of all sessions together, without the pauses between them. No child, verdict or contest is begun after
    #: them; what has begun ends and counts, and the generation under way stays open for `kbevolve resume`.
    wall_seconds: float | None = Field(None, gt=0, allow_inf_nan=False)
    #: Speedup over eager that is enough, once it is confirmed.
    target_speedup: float | None = Field(None, gt=0, allow_inf_nan=False)
    #: Share of the roofline that is enough, of the best kernel, where the judge knows it (CUDA only).
    roofline_share: float | None = Field(None, gt=0, le=1)
    #: A YAML file of your own prices, like `configs/prices.yaml`; they take precedence.
    prices: Path | None = None


class LLMSettings(Section):
    """Which model writes children; none by default, then the tunables proposer works alone."""

    #: Model name as the endpoint knows it, None for no model.
    model: str | None = None
    #: Several models instead of the one; () for the one. Each has a name of its own and may have a weight, api_base,
    #: api_key_variable, temperature, max_tokens and reasoning_effort.
    models: tuple[ModelSettings, ...] = ()
    #: Which of several models writes a child: "weights" by their weights alone, "bandit" by the gains of each model,
    #: per dollar where all their prices are known.
    model_choice: Literal["weights", "bandit"] = "weights"
    #: "openai" (any OpenAI-compatible endpoint), "claude_code" or "copilot_cli". Settings of older runs may name
    #: "manual", which no longer exists: they load, but no model can be built from them.
    provider: Literal["openai", "claude_code", "copilot_cli", "manual"] = "openai"
    #: Base address of the endpoint, e.g. http://127.0.0.1:8000/v1; None for the provider's own.
    api_base: Address = None
    #: Name of the environment variable that holds the key.
    api_key_variable: str = "OPENAI_API_KEY"
    #: Sampling temperature; an exploratory island multiplies it by 1.25 (`islands.policy`).
    temperature: float = Field(0.8, ge=0, le=2)
    #: Tokens of a reply at most.
    max_tokens: int = Field(16000, ge=256)
    #: How long a model reasons, in a word that its endpoint knows, such as "low" or "high"; None says nothing of it.
    reasoning_effort: str | None = Field(None, min_length=1)
    #: Seconds a request may take.
    timeout: float = Field(300.0, gt=0)
    #: How often a failed request is tried again.
    retries: int = Field(4, ge=0)
    #: Requests started a minute, evenly spread, of all models together; None for no limit.
    requests_per_minute: float | None = Field(None, gt=0, allow_inf_nan=False)
    #: Requests under way at once, of all models together; None for one for each child under way.
    parallel: int | None = Field(None, ge=1)
    #: Ideas asked for at once.
    ideas_per_call: int = Field(4, ge=1, le=16)
    #: Examples in a prompt for a new file: "zero_shot" none; "one_shot" a short complete file in each language;
    #: "few_shot" also fused GELU, a tiled matmul and minimal flash attention, where we have written them in it.
    prompt_option: Shots = "one_shot"

    @model_validator(mode="before")
    @classmethod
    def _without_removed(cls, tree: Any) -> Any:
        """Settings of older runs name `manual_dir`, the directory of the provider "manual"."""
        return {name: tree[name] for name in tree if name != "manual_dir"} if isinstance(tree, Mapping) else tree

    @field_validator("models")
    @classmethod
    def _check_names(cls, models: tuple[ModelSettings, ...], others: ValidationInfo) -> tuple[ModelSettings, ...]:
        names = [model.name for model in models]
        if models and others.data.get("model") is not None:
            raise PydanticCustomError("two_ways", "llm.model names one model and llm.models names several; set one")
        if len(set(names)) < len(names):
            raise PydanticCustomError("twice", "A name is there twice; an archive identifies models by their names")
        return models

    def each(self) -> "tuple[LLMSettings, ...]":
        """The settings of every model by itself, as if it were the only one; those of no model count as one."""
        return tuple(self._only(model) for model in self.models) or (self,)

    def _only(self, model: ModelSettings) -> "LLMSettings":
        own = ("api_base", "api_key_variable", "temperature", "max_tokens", "reasoning_effort")
        given = {name: value for name in own if (value := getattr(model, name)) is not None}
        return self.model_copy(update={"model": model.name, "models": (), **given})
