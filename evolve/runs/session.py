"""One session of a run, new or resumed: everything is put together, and closed again whatever happens."""

import json
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import PurePath
from time import monotonic

from kbevolve.archive.records import KnownDevice, Operator, ProblemCard, Run, StopReason
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import EvaluatorError, ProblemError, ProposerError, Unanswered, UsageError
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import Settings
from kbevolve.evaluators.device import lock
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.timing.baselines import Baseline
from kbevolve.evolve.proposers.base import Proposer
from kbevolve.evolve.proposers.codegen.languages import check_backends
from kbevolve.evolve.proposers.factory import build_proposers, give_up
from kbevolve.evolve.runs.evaluators import SEARCH_JUDGE, AbsentJudges, JudgeDevices, Judges, open_judges
from kbevolve.evolve.runs.lock import lock_holder
from kbevolve.evolve.runs.starts import dealt, given_starts, inductor_starts, new_starts, recorded_starts
from kbevolve.evolve.runs.versions import recorded_versions
from kbevolve.evolve.search.budget import Budget
from kbevolve.evolve.search.events import Observer
from kbevolve.evolve.search.search import Search
from kbevolve.evolve.state.context import RunContext
from kbevolve.evolve.state.population import Population
from kbevolve.evolve.state.transfer import TransferredKnowledge, received_by
from kbevolve.evolve.strategies import check_strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a session ended."""

    reason: StopReason
    #: What the run knows now; None when the session ended before it got further than the earlier ones.
    population: Population | None = None
    #: What the best kernel should beat; empty unless the run is over and baselines were requested.
    baselines: tuple[Baseline, ...] = ()


def check_new_run(settings: Settings, proposers: Collection[Operator]) -> None:
    """Check that a run is possible, before the archive is opened.

    Raises:
        UsageError: the strategy needs other proposers, or the file of a starting kernel cannot be read.
        SettingsError: a limit of the budget cannot be kept.
    """
    check_strategy(settings, proposers)
    given_starts(settings)
    Budget.of(settings).check(settings)


def check_settings(settings: Settings) -> None:
    """As `check_new_run`, with the proposers that the settings name. Raises ProposerError where one cannot be built."""
    proposers = build_proposers(settings)
    try:
        check_new_run(settings, proposers)
    finally:
        give_up(proposers)


def open_run(archive: Archive, problem: Problem, device: Device, settings: Settings) -> Run:
    """Write a new run to the archive; SettingsError when its kernels cannot run on the device."""
    check_backends(settings.search, device.type, device.description)
    archive.add_problem(problem)
    now = datetime.now(UTC)
    stem = PurePath(problem.name.replace(":", "-")).stem
    run = Run(
        # Two runs may start in the same second on machines that share an archive, so four digits are random.
        id=f"{stem}-{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}",
        problem_name=problem.name,
        problem=problem.id,
        device=device.fingerprint,
        seed=settings.search.seed,
        settings=settings.model_dump_json(),
        versions=recorded_versions(),
        created=now.isoformat(timespec="seconds"),
    )
    archive.add_run(run)
    return run


def discard_empty(archive: Archive, run: Run) -> None:
    """Remove a run that ended before its first attempt: its problem was refused. It stays while others work here, as
    for `kbevolve archive rm-run`."""
    others = (one.run for one in archive.runs.summaries() if one.run != run)
    if not archive.runs.summary(run).births and not any(lock_holder(archive, other) for other in others):
        archive.remove_run(run)


def settings_of(run: Run, overrides: Mapping[str, object]) -> Settings:
    """The settings that a run was started with, some of them changed for this session."""
    return Settings.load(base=json.loads(run.settings), overrides=overrides)


def run_session(
    context: RunContext,
    devices: JudgeDevices,
    *,
    observer: Observer | None = None,
    say: Callable[[str], None] = lambda line: None,
    judge: str = SEARCH_JUDGE,
    absent: AbsentJudges | None = None,
    shared: Judges | None = None,
    proposers: Mapping[Operator, Proposer] | None = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> Ending:
    """Continue a run until it stops; the reason is written to the archive in any case.

    Args:
        context: the run, on the device of the judges.
        devices: the devices of the judges.
        observer: called at every step.
        say: shows a line to the user, e.g. why a starting kernel is missing.
        judge: "module:Class" of the judges.
        absent: replaces the judges; the run then goes as far as the verdicts in the archive.
        shared: judges that are open already, and stay open.
        proposers: the proposer of each operator; None for those that the settings name.
        meanwhile: called before the search, while torch.compile generates starting kernels.

    Raises:
        UsageError: the run was measured on another device.
        ProposerError, EvaluatorError, ArchiveError: infrastructure failure; everything finished is in the archive.
        ProblemError: an answer that ignores the input would pass, and `evaluation.force` is off.
    """
    archive, run, settings = context.archive, context.run, context.settings
    _check_device(context)
    Budget.of(settings).check(settings)
    proposers = proposers or build_proposers(settings)
    check_strategy(settings, proposers)
    search: Search | None = None
    try:
        is_replay = absent is not None and context.view.last_generation() is not None
        starts = recorded_starts(context) if is_replay else dealt(new_starts(context), settings.search.islands)
        # The device on which this machine times kernels while torch.compile generates its own.
        device = None if absent or devices.cluster else devices.devices[0]
        ready = absent or shared
        if device is not None and lock.is_taken(device):
            say("Another kbevolve process is measuring on this device; this run goes on whenever that one is done.")
        with (
            _session(context) as elapsed,
            ThreadPoolExecutor(1) as early,  # left when the process that it waits for is dead
            inductor_starts(context, starts, device, say) as generated,
            nullcontext(ready) if ready else open_judges(devices, settings, judge=judge) as judges,
        ):
            context = _with_knowledge(context, judges, say)
            generated = early.submit(generated).result if generated else None
            meanwhile()
            search = Search(
                context,
                proposers=proposers,
                evaluator=judges,
                confirmer=judges,
                width=judges.width,
                starts=starts,
                generated=generated,
                elapsed=elapsed,
                observer=observer,
            )
            reason = search.run()
            baselines = _baselines(context, judges, reason, say)
            return Ending(reason=reason, population=search.population, baselines=baselines)
    except KeyboardInterrupt:
        reason = StopReason.INTERRUPTED
    except Unanswered:
        reason = StopReason.WAITING
    except ProposerError:
        archive.add_stop(run.id, StopReason.PROPOSER)
        raise
    except (EvaluatorError, ProblemError):
        archive.add_stop(run.id, StopReason.EVALUATOR)
        raise
    finally:
        give_up(proposers)
    archive.add_stop(run.id, reason)
    return Ending(reason=reason, population=search.population if search and search.live else None)


def _check_device(context: RunContext) -> None:
    run, device = context.run, context.device
    if run.device != device.fingerprint:
        raise UsageError(
            f"run {run.id} was measured on {run.device}; this is {device.fingerprint}, and times of two devices are "
            "never ranked together; start a new run here"
        )


@contextmanager
def _session(context: RunContext) -> Iterator[Callable[[], float]]:
    """Write when the session starts and ends; yields a clock of the seconds that all sessions have lasted."""
    archive, run, device = context.archive, context.run, context.device
    before, started = archive.runs.wall_seconds(run.id), monotonic()
    began = archive.start_session(run.id)
    try:
        archive.add_device(KnownDevice(fingerprint=run.device, type=device.type, description=device.description))
        yield lambda: before + monotonic() - started
    finally:
        archive.end_session(run.id, began)


def _with_knowledge(context: RunContext, judges: Judges | AbsentJudges, say: Callable[[str], None]) -> RunContext:
    """Add the problem card and what other problems taught; both are in the archive before anything depends on them."""
    card = _card(context, judges)
    for flag, reason in card.flags.items():
        say(f"{context.problem.name}: {flag}: {reason}")
    if card.unjudgeable:
        raise ProblemError(f"{context.problem.name}: {card.unjudgeable}; make it deterministic in evaluation mode")
    if card.degenerate and not context.settings.evaluation.force:
        raise ProblemError(
            f"{context.problem.name} is degenerate: {card.flags['degenerate'].rstrip('.')}; change its inputs or its "
            "sizes, or search all the same with --force"
        )
    transfer = TransferredKnowledge()
    if context.settings.search.transfer:
        transfer = received_by(context.archive, context.run, context.problem)
    return replace(context, card=card, transfer=transfer)


def _card(context: RunContext, judges: Judges | AbsentJudges) -> ProblemCard:
    """What the judge measures about the problem, except times that differ from earlier ones by chance.

    Prompts quote these times, and a prompt must not depend on the number of sessions or on a replay.
    """
    found = judges.card(context.problem)
    known = context.archive.problems.card(found.problem, found.device, found.precision)
    # A card of an older version has no rates.
    same = known is not None and known.flags.keys() == found.flags.keys() and known.peaks.keys() == found.peaks.keys()
    card = known if known is not None and same else found
    context.archive.add_card(card)
    return card


def _baselines(
    context: RunContext, judges: Judges | AbsentJudges, reason: StopReason, say: Callable[[str], None]
) -> tuple[Baseline, ...]:
    """The baselines of a run that is over; none when they cannot be measured: the run is valid without them."""
    if not context.settings.evaluation.baselines or reason is StopReason.NO_SEED:
        return ()
    if reason is StopReason.WALL_TIME_SPENT:
        say("Its time is over, so torch.compile is not timed; `kbevolve evaluate FILE --baselines` times it.")
        return ()
    say("Timing the reference in torch.compile and in other ways of PyTorch; Ctrl-C leaves this out …")
    try:
        return judges.baselines(context.problem)
    except EvaluatorError as error:
        say(f"without baselines: {error}")
    except KeyboardInterrupt:
        pass
    return ()
