"""`kbevolve run` and `kbevolve resume`: evolve kernels and show the progress."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TextIO

import click

from kbevolve.archive.records import Operator, StopReason
from kbevolve.archive.store import Archive
from kbevolve.configs.catalog import find_problem
from kbevolve.configs.errors import EvaluatorError, KBEvolveError, ProblemError, UsageError
from kbevolve.configs.settings import Settings
from kbevolve.evaluators.device.load import load_warning
from kbevolve.evolve.cli.completion import complete_runs
from kbevolve.evolve.cli.options import (
    archive_option,
    archive_words,
    events_option,
    kernelbench_option,
    log_option,
    problem_argument,
    record_option,
    replay_option,
)
from kbevolve.evolve.cli.render.console import Console
from kbevolve.evolve.cli.render.json import print_json_line, reserved_output
from kbevolve.evolve.cli.render.log_file import log_console
from kbevolve.evolve.cli.render.progress import LineProgress, progress_for
from kbevolve.evolve.cli.render.summary import print_summary
from kbevolve.evolve.cli.render.tables import note, say
from kbevolve.evolve.cli.settings_options import SettingsChoice, settings_options
from kbevolve.evolve.cli.signals import INTERRUPTED, interruptible
from kbevolve.evolve.llm.client import check_endpoints
from kbevolve.evolve.llm.replies import cached, choose_models, recorded
from kbevolve.evolve.proposers.base import Proposer
from kbevolve.evolve.proposers.factory import build_proposers
from kbevolve.evolve.proposers.tuning.tunables import declared
from kbevolve.evolve.runs.evaluators import JudgeDevices, find_judge_devices
from kbevolve.evolve.runs.event_stream import EventStream, Sink
from kbevolve.evolve.runs.lock import run_lock
from kbevolve.evolve.runs.session import check_new_run, discard_empty, open_run, run_session, settings_of
from kbevolve.evolve.runs.starts import new_starts, takes_templates
from kbevolve.evolve.runs.trackers import trackers_of
from kbevolve.evolve.search.events import Event
from kbevolve.evolve.state.context import RunContext
from kbevolve.evolve.strategies import STRATEGIES

#: Settings that cannot change within a run: all its kernels depend on them.
_FIXED = {*(f"search.{name}" for name in ("strategy", "islands", "seed", "lookahead")), "evaluation.precision"}


@click.command(epilog="Example: kbevolve run --problem L1/matmul --generations 50")
@problem_argument
@settings_options
@record_option
@replay_option
@events_option
@log_option
@archive_option
@kernelbench_option
def run(
    problem_name: str,
    choice: SettingsChoice,
    record_to: Path | None,
    replay_from: Path | None,
    as_json: bool,
    log_file: TextIO | None,
    archive_path: Path,
    kernelbench_dir: Path | None,
) -> int:
    """Evolve kernels for a problem: a built-in one (L1/matmul), a file in KernelBench's format, or kernelbench:1/19.

    Islands of kernels evolve; each child is judged on the device and recorded in the archive. Without a model the
    search changes the tunables that the starting kernels declare.
    """
    problem = find_problem(problem_name, kernelbench=kernelbench_dir)
    settings, devices = choice.load()
    settings, make = choose_models(settings, record=record_to, replay=replay_from)
    sinks = trackers_of(settings.trackers, _warn)
    # A missing key or file is reported before the archive is opened.
    check_new_run(settings, build_proposers(settings, make))
    _check_models(settings, replay_from)
    with Archive(archive_path) as archive:
        record = open_run(archive, problem, devices.device, settings)
        replies = archive.replies(record)
        proposers = build_proposers(settings, cached(make, replies))
        context = RunContext(archive=archive, run=record, problem=problem, device=devices.device, settings=settings)
        try:
            with recorded(record_to, settings.llm, replies):
                return _search_and_report(context, devices, proposers, sinks, as_json=as_json, log_file=log_file)
        except (ProblemError, EvaluatorError):
            discard_empty(archive, record)
            raise


@click.command(epilog="Example: kbevolve resume --generations 100")
@click.argument("which", default="latest", metavar="[RUN]", shell_complete=complete_runs)
@settings_options
@record_option
@replay_option
@events_option
@log_option
@archive_option
def resume(
    which: str,
    choice: SettingsChoice,
    record_to: Path | None,
    replay_from: Path | None,
    as_json: bool,
    log_file: TextIO | None,
    archive_path: Path,
) -> int:
    """Continue a run: the latest one, or the one whose id begins with RUN.

    Finished work is not repeated. A run that reached its limits continues with larger limits, e.g. --generations. It
    uses the same devices as before, or others of the same model with --devices and --workers.
    """
    if choice.preset or choice.config:
        raise UsageError("a run keeps its settings; change one with --set NAME=VALUE or a short option")
    with Archive(archive_path, create=False) as archive:
        record = archive.runs.get(which)
        frozen = sorted(_FIXED & choice.overrides.keys())
        if frozen:
            raise UsageError(f"{' and '.join(frozen)} cannot change within a run; start a new one with `kbevolve run`")
        # --device replaces the devices of the session before.
        local = {"work.devices": [], "work.workers": "local"} if "device" in choice.overrides else {}
        settings = settings_of(record, {**local, **choice.overrides})
        reached = archive.run_view(record).last_generation() or 0
        over = archive.runs.summary(record).stopped is StopReason.GENERATIONS
        if over and reached >= settings.search.generations:
            raise UsageError(
                f"run {record.id} has finished its {reached} generations; "
                f"give more with --generations {reached * 2 or 50}"
            )
        settings, make = choose_models(settings, record=record_to, replay=replay_from, more=True)
        sinks = trackers_of(settings.trackers, _warn)
        _check_models(settings, replay_from)
        from kbevolve.evolve.proposers.interactive import Interaction  # imports the templates, which --help needs not

        interaction = Interaction(questions=archive.questions(record))  # answers of people precede those of models
        replies = archive.replies(record)
        proposers = build_proposers(settings, cached(make, replies), interaction)
        unused = interaction.questions.unused() if Operator.MUTATE not in proposers else 0
        if unused and settings.proposer == "auto":
            raise UsageError(
                f"run {record.id} has {unused} answers that no child has used; use them first with "
                "`kbevolve ask`, or continue without them: --set proposer=tunables"
            )
        devices, problem = find_judge_devices(settings, judged=True), archive.problems.get(record.problem)
        context = RunContext(archive=archive, run=record, problem=problem, device=devices.device, settings=settings)
        with recorded(record_to, settings.llm, replies):
            return _search_and_report(context, devices, proposers, sinks, as_json=as_json, log_file=log_file)


def _search_and_report(
    context: RunContext,
    devices: JudgeDevices,
    proposers: Mapping[Operator, Proposer],
    sinks: Sequence[Sink],
    *,
    as_json: bool,
    log_file: TextIO | None,
) -> int:
    console = Console(stderr=as_json)
    log = log_console(log_file)

    def show(line: str) -> None:
        note(console, line)
        if log is not None:
            say(log, line)

    busy = load_warning()
    for line in _hints(context, busy, writes_code=Operator.MUTATE in proposers):
        show(line)
    with ExitStack() as stack:
        stack.enter_context(run_lock(context.archive, context.run))
        if as_json:
            sinks = [*sinks, partial(print_json_line, file=stack.enter_context(reserved_output()))]
        stack.enter_context(interruptible())
        stream = EventStream(context, devices.description, *sinks)
        try:
            with progress_for(context, devices, console) as progress:
                logged = LineProgress(context, devices, log, every_kernel=True) if log is not None else None

                def observe(event: Event) -> None:
                    stream(event)
                    progress(event)
                    if logged is not None:
                        logged(event)

                ending = run_session(context, devices, observer=observe, say=show, proposers=proposers)
        except KBEvolveError as error:
            stream.failed(str(error))
            if log is not None:
                say(log, str(error))
            if context.archive.runs.summary(context.run).births:
                where = archive_words(Path(context.archive.path))
                show(f"Nothing is lost; when this is repaired: kbevolve resume {context.run.id}{where}")
            raise
        stream.stopped(ending.reason, ending.baselines)
    if log is not None:
        print_summary(log, context, ending)
    if not as_json:
        print_summary(console, context, ending)
        if busy and ending.population is not None and ending.population.totals.judged:
            again = f"kbevolve verify {context.run.id}{archive_words(Path(context.archive.path))}"
            show(f"The machine was busy when this session began. On a quiet one: {again}")
    return {StopReason.INTERRUPTED: INTERRUPTED, StopReason.NO_SEED: 1}.get(ending.reason, 0)


def _warn(line: str) -> None:
    say(Console(stderr=True), line, "yellow")


def _check_models(settings: Settings, replay_from: Path | None) -> None:
    """Reach the endpoints of the models before anything is judged."""
    if replay_from is None and settings.proposer in ("auto", "llm"):
        check_endpoints(settings.llm)


def _hints(context: RunContext, busy: str, *, writes_code: bool) -> Iterator[str]:
    """What the user should know before the first child."""
    settings = context.settings
    strategy = settings.search.strategy
    if strategy != "evolve":
        yield f"Strategy {strategy}: {STRATEGIES[strategy].words}."
    if busy:
        yield busy
    if not writes_code:
        remedy = "add --model NAME and --api-base URL (or set OPENAI_API_KEY) for new kernels"
        begins = context.view.last_generation() is None
        tunable = any(declared(start.kernel.source) for start in new_starts(context))
        if begins and not tunable and not (settings.inductor_seed and takes_templates(context)):
            yield (
                "There is nothing to search: no model is configured, and no starting kernel declares tunables; "
                f"{remedy}, or --start FILE with a kernel that declares some."
            )
        else:
            yield f"No model is configured, so children differ in their tunables only; {remedy}."
