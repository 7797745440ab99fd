"""Ask: a run goes on by what was told and judged so far, up to the questions that are open and the kernels that wait.

Nothing is decided here. The run is resumed as ever, with whoever is outside as its model, and stops where it cannot go
on without an answer.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kbevolve.archive.records import Birth, Evaluation, Run, StopReason
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import EvaluatorError, UsageError
from kbevolve.configs.settings import Settings
from kbevolve.evaluators.device.devices import Device
from kbevolve.evolve.llm.reply_cache import cached
from kbevolve.evolve.proposers.factory import WRITING, build_proposers
from kbevolve.evolve.proposers.interactive import Nobody, Open, Outside
from kbevolve.evolve.runs.absent import AbsentJudges
from kbevolve.evolve.runs.evaluators import Hands, find_hands
from kbevolve.evolve.runs.lock import alone_at
from kbevolve.evolve.runs.pending import Waiting, waiting
from kbevolve.evolve.runs.session import breed
from kbevolve.evolve.search.events import Event, Observer
from kbevolve.evolve.strategies import check_strategy

#: Seconds that another process at the run is waited for: more than it takes to judge what a few answers brought.
PATIENCE = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """A birth that came by asking, or whose verdict did."""

    birth: Birth
    #: None when it has no kernel, or the kernel waits.
    evaluation: Evaluation | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How far a run has got, and what it waits for."""

    run: Run
    reason: StopReason
    #: Everything that is open, the oldest generation first.
    open: tuple[Open, ...]
    #: Kernels without a verdict.
    waiting: tuple[Waiting, ...]
    #: What happened meanwhile, in order of birth.
    news: tuple[News, ...]

    @property
    def over(self) -> bool:
        """Whether nothing more will be asked."""
        return self.reason not in (StopReason.WAITING, StopReason.INTERRUPTED)

    @property
    def interrupted(self) -> bool:
        """Whether the user has had enough before it had come so far."""
        return self.reason is StopReason.INTERRUPTED


def ask(
    archive: Archive,
    run: Run,
    settings: Settings,
    *,
    hands: Hands | None = None,
    judge: bool = True,
    observer: Observer = lambda event: None,
    tell: Callable[[str], None] = lambda line: None,
) -> Asked:
    """Go on with a run as far as answers and verdicts reach.

    Args:
        archive: where the run is.
        run: its record.
        settings: its settings.
        hands: the devices that judge; None looks for those of the settings once there is anything to judge.
        judge: whether kernels are judged here; otherwise those without a verdict wait.
        observer: told of every step, as soon as anything is judged.
        tell: hears lines for the user.

    Raises:
        UsageError: another process is at the run, or it is judged on another device.
        EvaluatorError, ArchiveError: the rig is broken; what was finished is in the archive.
    """
    check_askable(settings)
    evaluation = settings.evaluation.model_copy(update={"baselines": False})
    settings = settings.model_copy(update={"proposer": "ask", "evaluation": evaluation})
    with alone_at(archive, run, patience=PATIENCE):
        before = _Snapshot.of(archive, run)
        reason, outside = _go_on(archive, run, settings, hands, judge, observer, tell)
        news = _Snapshot.of(archive, run).since(before)
        return Asked(
            run=run,
            reason=reason,
            open=tuple(outside.in_order()),
            waiting=tuple(waiting(archive, run)),
            news=news,
        )


def check_askable(settings: Settings) -> None:
    """Raises UsageError: nobody outside can write the children of such a run."""
    if settings.search.strategy == "openevolve":
        raise UsageError("strategy openevolve asks its models by itself; ask a run of another strategy")
    check_strategy(settings, WRITING)


def _go_on(
    archive: Archive,
    run: Run,
    settings: Settings,
    hands: Hands | None,
    judge: bool,
    observer: Observer,
    tell: Callable[[str], None],
) -> tuple[StopReason, Outside]:
    problem = archive.problem(run.problem)

    def sit(hands: Hands, absent: AbsentJudges | None) -> tuple[StopReason, Outside]:
        outside = Outside(questions=archive.questions(run))
        # What a model has answered already stays answered.
        make = cached(lambda one, rate_limit: Nobody(), archive.replies(run))
        proposers = build_proposers(settings, make, outside)
        watch = observer if absent is None else _see_nothing  # what is to be judged is not judged there
        ending = breed(archive, run, problem, hands, settings, watch, tell, absent=absent, proposers=proposers)
        return ending.reason, outside

    # What needs no judge is done first: judges take seconds to open, and often this is all. Not so in a run that has
    # just begun.
    absent = AbsentJudges(archive=archive, run=run)
    known = _known_hands(archive, run) or hands
    if known is not None and (not judge or archive.ledger(run).last_ended() is not None):
        reason, outside = sit(known, absent)
        if not judge or not absent.wanted:
            return reason, outside
    elsewhere = (
        "give --no-judge here, and have its kernels judged there: `kbevolve ask --no-judge --births DIR` writes them"
    )
    try:
        hands = hands or find_hands(settings)
    except EvaluatorError as error:
        raise UsageError(f"run {run.id} is judged on {run.device}: {error}. Or {elsewhere}") from None
    if hands.device.fingerprint != run.device:
        raise UsageError(f"run {run.id} is judged on {run.device}; this is {hands.device.fingerprint}: {elsewhere}")
    return sit(hands, None if judge else absent)


def _see_nothing(event: Event) -> None:
    """The observer of a sitting in which nothing is judged."""


def _known_hands(archive: Archive, run: Run) -> Hands | None:
    """A run's device as the archive knows it; it need not be on this machine, and torch is not imported to find it."""
    known = archive.device(run.device)
    if known is None:
        return None
    device = Device(type=known.type, index=0, fingerprint=known.fingerprint, description=known.description)
    return Hands(devices=(device,), device=device)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Snapshot:
    """The births of a run and what was found about their kernels."""

    births: dict[str, Birth]
    found: dict[str, Evaluation]

    @classmethod
    def of(cls, archive: Archive, run: Run) -> "_Snapshot":
        births = {birth.id: birth for birth in archive.births(run.id, texts=False)}
        return cls(births=births, found=archive.evaluations(run.id))

    def since(self, before: "_Snapshot") -> tuple[News, ...]:
        news = []
        for birth in self.births.values():
            evaluation = self.found.get(birth.kernel) if birth.kernel else None
            judged = evaluation is not None and birth.kernel not in before.found
            if birth.id not in before.births or judged:
                news.append(News(birth=birth, evaluation=evaluation))
        return tuple(news)
