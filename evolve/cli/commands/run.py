"""`kbevolve run` and `kbevolve resume`: breed kernels and show how it goes."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from kbevolve.archive.records import Operator, StopReason
from kbevolve.archive.store import Archive
from kbevolve.configs.catalog import find_problem
from kbevolve.configs.errors import UsageError
from kbevolve.configs.settings import Settings, parse_override
from kbevolve.evolve.cli.options import (
    BUDGET_SHORT,
    archive_option,
    budget_options,
    check_devices,
    device_option,
    devices_option,
    force_option,
    kernelbench_option,
    library_option,
    model_option,
    problem_option,
    record_option,
    replay_option,
    workers_option,
)
from kbevolve.evolve.cli.render.progress import Header, progress_for
from kbevolve.evolve.cli.render.summary import print_summary
from kbevolve.evolve.cli.signals import INTERRUPTED, interruptible
from kbevolve.evolve.llm.recording import Recording, model_maker
from kbevolve.evolve.llm.reply_cache import cached
from kbevolve.evolve.proposers.base import Proposer
from kbevolve.evolve.proposers.factory import build_proposers, proposer_words
from kbevolve.evolve.runs.evaluators import JudgeDevices, find_judge_devices
from kbevolve.evolve.runs.lock import run_lock
from kbevolve.evolve.runs.session import open_run, run_session, settings_of
from kbevolve.evolve.runs.settings import settings_and_devices
from kbevolve.evolve.runs.starts import given_starts
from kbevolve.evolve.search.budget import Budget
from kbevolve.evolve.state.context import RunContext
from kbevolve.evolve.strategies import STRATEGIES, check_strategy


def settings_options(command: Any) -> Any:
    """Options that change settings; each is short for a `--set`."""
    for option in reversed(
        (
            click.option(
                "--strategy",
                type=click.Choice(list(STRATEGIES)),
                help="How children come about; all but the first are what it is measured against.  [default: evolve]",
            ),
            click.option("--generations", type=int, help="Generations to reach; in each, every island bears a child."),
            *budget_options,
            click.option("--islands", type=int, help="Number of islands.  [default: as --max-evaluations suits]"),
            click.option("--seed", type=int, help="Seed of the search; the same seed replays the same choices."),
            device_option,
            devices_option,
            workers_option,
            click.option("--precision", help="What the task asks for: fp32, tf32, fp16 or bf16.  [default: fp32]"),
            library_option,
            force_option,
            click.option(
                "--baselines/--no-baselines",
                default=None,
                help="At the end, time torch.compile and eager in a CUDA graph as well.  [default: baselines]",
            ),
            model_option,
            click.option("--api-base", help="OpenAI-compatible endpoint, e.g. http://127.0.0.1:8000/v1."),
            click.option("--provider", help="openai, claude_code or copilot_cli."),
            click.option(
                "--start",
                "starts",
                multiple=True,
                type=click.Path(dir_okay=False, path_type=Path),
                help="A ModelNew file to start from; may be given again.",
            ),
            click.option("--preset", help="Settings to start from: cpu, default, smoke."),
            click.option("--config", type=click.Path(dir_okay=False, path_type=Path), help="A YAML file of settings."),
            click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE", help="Any other setting."),
        )
    ):
        command = option(command)
    return command


_SHORT = {
    **BUDGET_SHORT,
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

#: Settings that a run keeps: everything it has bred rests on them.
_KEPT = {*(f"search.{name}" for name in ("strategy", "islands", "seed", "lookahead")), "evaluation.precision"}


def overrides_of(assignments: tuple[str, ...], short: dict[str, Any]) -> dict[str, Any]:
    """Overrides from ``--set`` and from the short options; the short ones win.

    Raises:
        UsageError: two of them contradict each other.
    """
    check_devices(short.get("device"), short.get("devices"), short.get("workers"))
    overrides = dict(parse_override(text) for text in assignments)
    overrides.update(short.get("models", {}))
    given = {name: value for name, value in short.items() if name != "models" and value not in (None, ())}
    overrides.update({_SHORT[name]: value for name, value in given.items()})
    return overrides


@click.command(
    epilog="Example: kbevolve run --problem L1/matmul --generations 50",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@problem_option
@settings_options
@record_option
@replay_option
@archive_option
@kernelbench_option
def run(
    problem_name: str,
    preset: str | None,
    config: Path | None,
    assignments: tuple[str, ...],
    record_to: Path | None,
    replay_from: Path | None,
    archive_path: Path,
    kernelbench_dir: Path | None,
    **short: Any,
) -> int:
    """Evolve kernels for a problem.

    Islands of kernels evolve; every child is judged on the device and kept in the archive. Without a model the
    search changes the tunables that the starting kernels declare.
    """
    problem = find_problem(problem_name, kernelbench=kernelbench_dir)
    settings, devices = settings_and_devices(preset=preset, config=config, overrides=overrides_of(assignments, short))
    settings, recorded = _with_recording(settings, replay_from)
    with model_maker(settings, record=record_to, replay=recorded) as make:
        # A key or a file that is missing is said before the archive is touched.
        check_strategy(settings, build_proposers(settings, make))
        given_starts(settings)
        Budget.of(settings).check(settings)
        with Archive(archive_path) as archive:
            record = open_run(archive, problem, devices.device, settings)
            proposers = build_proposers(settings, cached(make, archive.replies(record)))
            context = RunContext(archive=archive, run=record, problem=problem, device=devices.device, settings=settings)
            return _search_and_report(context, devices, proposers)


@click.command(
    epilog="Example: kbevolve resume --generations 100",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("which", default="latest", metavar="[RUN]")
@settings_options
@record_option
@replay_option
@archive_option
def resume(
    which: str,
    preset: str | None,
    config: Path | None,
    assignments: tuple[str, ...],
    record_to: Path | None,
    replay_from: Path | None,
    archive_path: Path,
    **short: Any,
) -> int:
    """Go on with a run: the latest one, or the one whose id begins with RUN.

    Nothing that was finished is done again. Give --generations, or more of what it has spent, to go further than the
    run was asked to. It goes on with the devices that it had, or with as many others of the same model as --devices and
    --workers say.
    """
    if preset or config:
        raise UsageError("a run keeps its settings; change one with --set NAME=VALUE or a short option")
    with Archive(archive_path, create=False) as archive:
        record = archive.runs.get(which)
        overrides = overrides_of(assignments, short)
        if short.get("device"):
            overrides = {"work.devices": [], "work.workers": "local"} | overrides  # instead of the sitting before's
        frozen = sorted(_KEPT & overrides.keys())
        if frozen:
            raise UsageError(f"{' and '.join(frozen)} cannot change within a run; start a new one with `kbevolve run`")
        settings = settings_of(record, overrides)
        reached = archive.run_view(record).last_generation() or 0
        over = archive.runs.summary(record).stopped is StopReason.GENERATIONS
        if over and reached >= settings.search.generations:
            raise UsageError(
                f"run {record.id} is over after {reached} generations; "
                f"give --generations {reached * 2 or 50} to go further"
            )
        settings, recorded = _with_recording(settings, replay_from)
        with model_maker(settings, record=record_to, replay=recorded, more=True) as make:
            from kbevolve.evolve.proposers.interactive import (
                Interaction,  # brings the templates, which --help need not pay for
            )

            interaction = Interaction(questions=archive.questions(record))  # answers of people precede those of models
            kept = cached(make, archive.replies(record))
            proposers, problem = build_proposers(settings, kept, interaction), archive.problems.get(record.problem)
            unused = interaction.questions.unused() if Operator.MUTATE not in proposers else 0
            if unused and settings.proposer == "auto":
                raise UsageError(
                    f"run {record.id} was told {unused} answers that no child has used; use them first with "
                    "`kbevolve ask`, or go on without them: --set proposer=tunables"
                )
            devices = find_judge_devices(settings)
            context = RunContext(archive=archive, run=record, problem=problem, device=devices.device, settings=settings)
            return _search_and_report(context, devices, proposers)


def _with_recording(settings: Settings, replay_from: Path | None) -> tuple[Settings, Recording | None]:
    """A recording, and the settings with its models where they name none."""
    if replay_from is None:
        return settings, None
    recorded = Recording(replay_from)
    return settings.model_copy(update={"llm": recorded.settings_for(settings.llm)}), recorded


def _search_and_report(context: RunContext, devices: JudgeDevices, proposers: Mapping[Operator, Proposer]) -> int:
    console, archive, record, settings = Console(), context.archive, context.run, context.settings
    words = proposer_words(settings)
    for line in _hints(settings, words):
        console.print(Text(line, style="dim"), soft_wrap=True)
    header = Header(
        problem=context.problem.name,
        device=devices.description,
        proposer=words,
        generations=settings.search.generations,
        reference=context.reference,
    )
    with run_lock(archive, record), interruptible(), progress_for(header, console) as progress:

        def say(line: str) -> None:
            console.print(Text(line, style="dim"), soft_wrap=True)

        ending = run_session(context, devices, observer=progress, say=say, proposers=proposers)
    population = ending.population
    if population is None:
        console.print(f"Run {record.id}: {ending.reason.value}.", highlight=False)
    else:
        wall = archive.runs.wall_seconds(record.id)
        print_summary(
            console,
            run=record,
            population=population,
            reason=ending.reason,
            archive=archive,
            generations=settings.search.generations,
            spent=Budget.of(settings).spent(population.totals, wall_seconds=wall),
            baselines=ending.baselines,
        )
    return {StopReason.INTERRUPTED: INTERRUPTED, StopReason.NO_SEED: 1}.get(ending.reason, 0)


def _hints(settings: Settings, proposer: str) -> Iterator[str]:
    """What the user should know about the proposer before the first child."""
    strategy = settings.search.strategy
    if strategy != "evolve":
        yield f"Strategy {strategy}: {STRATEGIES[strategy].words}."
    if proposer.startswith("tunables"):
        yield (
            "No model is configured, so children differ in their tunables only; add --model NAME and --api-base URL "
            "(or set OPENAI_API_KEY) to have new kernels written."
        )
