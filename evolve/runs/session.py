"""One sitting at a run, new or resumed: everything put together, and taken apart again whatever happens."""

import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePath
from time import monotonic

from kbevolve.archive.known_devices import KnownDevice
from kbevolve.archive.records import Kernel, Operator, ProblemCard, Run, StopReason
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import EvaluatorError, ProblemError, ProposerError, Unanswered, UsageError
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import Settings
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.timing.baselines import Baseline
from kbevolve.evolve.proposers.base import Proposer
from kbevolve.evolve.proposers.factory import build_proposers, give_up
from kbevolve.evolve.proposers.seeds.seeds import StartingKernel, starting_kernels
from kbevolve.evolve.proposers.tuning.tunables import declared
from kbevolve.evolve.runs.absent import AbsentJudges
from kbevolve.evolve.runs.evaluators import Hands, Judging, open_judges
from kbevolve.evolve.runs.sparing import MAKER
from kbevolve.evolve.runs.versions import recorded_versions
from kbevolve.evolve.search.budget import Budget
from kbevolve.evolve.search.events import Observer
from kbevolve.evolve.search.search import Search
from kbevolve.evolve.state.transfer import TransferredKnowledge, received_by
from kbevolve.evolve.strategies import check_strategy
from kbevolve.islands.migration import deal


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a sitting at a run ended."""

    reason: StopReason
    #: What the best kernel should beat; empty unless the run is over and the baselines were asked for.
    baselines: tuple[Baseline, ...] = ()


def open_run(archive: Archive, problem: Problem, device: Device, settings: Settings) -> Run:
    """Write down a new run."""
    archive.add_problem(problem)
    now = datetime.now(UTC)
    stem = PurePath(problem.name.replace(":", "-")).stem
    run = Run(
        # Two runs may start in one second on machines that share an archive: the last four digits are drawn.
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


def settings_of(run: Run, overrides: Mapping[str, object]) -> Settings:
    """The settings a run was started with, some of them changed for this sitting."""
    return Settings.load(base=json.loads(run.settings), overrides=overrides)


def breed(
    archive: Archive,
    run: Run,
    problem: Problem,
    hands: Hands,
    settings: Settings,
    observer: Observer,
    tell: Callable[[str], None],
    *,
    judge: str | None = None,
    absent: AbsentJudges | None = None,
    proposers: Mapping[Operator, Proposer] | None = None,
) -> Ending:
    """Go on with a run until it stops; the reason is in the archive whatever it is.

    Args:
        archive: where the run is.
        run: its record.
        problem: its problem.
        hands: the devices that judge.
        settings: all settings.
        observer: told of every step.
        tell: hears lines for the user, e.g. why a starting kernel is missing.
        judge: "module:Class" of the judges, for simulations; None for those that judge.
        absent: takes the place of judges that are elsewhere: the run goes as far as verdicts are there.
        proposers: who carries out which operator; None for those that the settings name.

    Raises:
        ProposerError, EvaluatorError, ArchiveError: the rig is broken; what was finished is in the archive.
        ProblemError: an answer that ignores the input would pass, and `evaluation.force` is off.
    """
    device = hands.device
    if run.device != device.fingerprint:
        raise UsageError(
            f"run {run.id} was measured on {run.device}; this is {device.fingerprint}, and times of two devices are "
            "never ranked together; start a new run here"
        )
    Budget.of(settings).check(settings)
    proposers = proposers or build_proposers(settings)
    check_strategy(settings, proposers)
    try:
        opened: Judging = absent or open_judges(hands, settings, judge=judge or MAKER)
        with _sitting(archive, run) as elapsed, opened as judges:
            archive.add_device(KnownDevice(fingerprint=run.device, type=device.type, description=device.description))
            card = _card(judges, archive, problem, settings, tell)
            reason = Search(
                archive=archive,
                run=run,
                problem=problem,
                device_type=device.type,
                device=device.description,
                settings=settings,
                proposers=proposers,
                evaluator=judges,
                starts=_recorded_starts(archive, run, settings)
                if absent and archive.ledger(run).last_generation() is not None
                else dealt(_starts(archive, run, problem, device, settings, tell), settings.search.islands),
                card=card,
                transfer=received_by(archive, run, problem) if settings.search.transfer else TransferredKnowledge(),
                confirmer=judges,
                width=judges.width,
                elapsed=elapsed,
                observer=observer,
            ).run()
            return Ending(reason=reason, baselines=_baselines(judges, problem, settings, reason, tell))
    except KeyboardInterrupt:
        archive.add_stop(run.id, StopReason.INTERRUPTED)
        return Ending(reason=StopReason.INTERRUPTED)
    except Unanswered:
        archive.add_stop(run.id, StopReason.WAITING)
        return Ending(reason=StopReason.WAITING)
    except ProposerError:
        archive.add_stop(run.id, StopReason.PROPOSER)
        raise
    except (EvaluatorError, ProblemError):
        archive.add_stop(run.id, StopReason.EVALUATOR)
        raise
    finally:
        give_up(proposers)


@contextmanager
def _sitting(archive: Archive, run: Run) -> Iterator[Callable[[], float]]:
    """Write down when a sitting begins and ends; tells how long all of the run have lasted by now, in seconds."""
    before, started = archive.wall_seconds(run.id), monotonic()
    began = archive.start_session(run.id)
    try:
        yield lambda: before + monotonic() - started
    finally:
        archive.end_session(run.id, began)


def _card(
    judges: Judging, archive: Archive, problem: Problem, settings: Settings, tell: Callable[[str], None]
) -> ProblemCard:
    """What the judge finds out about the problem, told and written down before anything is bred for it.

    Times that differ from those of an earlier sitting by chance are no news. Prompts quote them: what is asked must
    depend neither on how often a run was stopped nor on whether it is a replay.
    """
    found = judges.card(problem)
    known = archive.card(found.problem, found.device, found.precision)
    card = known if known is not None and known.flags.keys() == found.flags.keys() else found
    archive.add_card(card)
    for flag, reason in card.flags.items():
        tell(f"{problem.name}: {flag}: {reason}")
    if card.degenerate and not settings.evaluation.force:
        raise ProblemError(
            f"{problem.name} is degenerate: {card.flags['degenerate'].rstrip('.')}; change its inputs or its sizes, or "
            "search all the same with --force"
        )
    return card


def _baselines(
    judges: Judging, problem: Problem, settings: Settings, reason: StopReason, tell: Callable[[str], None]
) -> tuple[Baseline, ...]:
    """The baselines of a run that is over; none when they cannot be measured, for the run stands without them."""
    if not settings.evaluation.baselines or reason is StopReason.NO_SEED:
        return ()
    tell("Timing what PyTorch itself makes of the reference; Ctrl-C leaves it out …")
    try:
        return judges.baselines(problem)
    except EvaluatorError as error:
        tell(f"without baselines: {error}")
    except KeyboardInterrupt:
        pass
    return ()


def dealt(starts: Iterable[StartingKernel], islands: int) -> list[list[StartingKernel]]:
    """Starting kernels of each island: those that declare tunables go round, the others go everywhere."""
    starts = list(starts)
    tunable = [start for start in starts if declared(start.kernel.source)]
    return deal([start for start in starts if start not in tunable], tunable, islands)


def _recorded_starts(archive: Archive, run: Run, settings: Settings) -> list[list[StartingKernel]]:
    """The starting kernels that the archive holds: torch.compile may give none on a machine without the device."""
    ledger = archive.ledger(run)
    starts: list[list[StartingKernel]] = [[] for _ in range(settings.search.islands)]
    for birth in ledger.births(0):
        if birth.kernel is not None:
            starts[birth.island].append(StartingKernel(kernel=ledger.kernel(birth.kernel), note=birth.note))
    return starts


def given_starts(settings: Settings) -> tuple[StartingKernel, ...]:
    """The starting kernels that the user gave as files.

    Raises:
        UsageError: a file cannot be read.
    """
    return tuple(
        StartingKernel(kernel=Kernel.from_source(_read_start(path)), note=f"given: {path.name}")
        for path in settings.starts
    )


def _read_start(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; --start wants a file with class ModelNew") from None


def _starts(
    archive: Archive, run: Run, problem: Problem, device: Device, settings: Settings, tell: Callable[[str], None]
) -> tuple[StartingKernel, ...]:
    """The starting kernels, unless generation 0 is over: Inductor's takes seconds to generate."""
    if archive.ledger(run).last_generation():
        return ()
    precision = settings.evaluation.precision
    ours = starting_kernels(problem, device.type, inductor=settings.inductor_seed, precision=precision, tell=tell)
    return ours + given_starts(settings)
