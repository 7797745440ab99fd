"""Ask: continue a run as far as answers and verdicts reach, and return its open questions and waiting kernels.

Nothing is decided here. The run is resumed as always, with people and agents as its model, and stops where it needs an
answer or a verdict.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kbevolve.archive.records import Birth, Evaluation, Kernel, Run, StopReason
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import EvaluatorError, UsageError
from kbevolve.configs.settings import Settings
from kbevolve.evaluators.device.devices import Device
from kbevolve.evolve.llm.replies import cached
from kbevolve.evolve.proposers.factory import WRITING, build_proposers
from kbevolve.evolve.proposers.interactive import Interaction, NoModel, OpenQuestion
from kbevolve.evolve.runs.evaluators import AbsentJudges, JudgeDevices, find_judge_devices
from kbevolve.evolve.runs.lock import run_lock
from kbevolve.evolve.runs.pending import pending_kernels
from kbevolve.evolve.runs.session import run_session
from kbevolve.evolve.search.events import Event, Observer
from kbevolve.evolve.state.context import RunContext
from kbevolve.evolve.strategies import check_strategy

#: Shows a line to the user.
Say = Callable[[str], None]
#: Seconds to wait for another process at the run: more than judging the kernels of a few answers takes.
PATIENCE = 120.0
_ELSEWHERE = (
    "give --no-judge here, and have its kernels judged there: `kbevolve ask --no-judge --pending DIR` writes them"
)


#: An attempt that is new since the last asking, or whose verdict is; None when it has no kernel, or its kernel waits.
AttemptNews = tuple[Birth, Evaluation | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class AskResult:
    """How far a run has come, and what it waits for."""

    run: Run
    reason: StopReason
    #: Open questions, the oldest generation first.
    open: tuple[OpenQuestion, ...]
    #: Kernels without a verdict, each with its first attempt.
    waiting: tuple[tuple[Birth, Kernel], ...]
    #: In order of creation.
    news: tuple[AttemptNews, ...]

    @property
    def over(self) -> bool:
        """Whether there will be no more questions."""
        return self.reason not in (StopReason.WAITING, StopReason.INTERRUPTED)

    @property
    def interrupted(self) -> bool:
        """Whether the user stopped it with Ctrl-C."""
        return self.reason is StopReason.INTERRUPTED


def _judging_lines(say: Say) -> Observer:
    """An observer that says one line for each kernel that is being judged, and for each contest."""
    said: set[str] = set()

    def show(event: Event) -> None:
        if event.contest:
            say(f"measuring {' and '.join((*event.contest, 'eager'))} again …")
        for birth in event.judging:
            if birth.kernel is not None and birth.kernel not in said:
                said.add(birth.kernel)
                say(f"judging {birth.kernel}, {birth.operator.value} of {birth.id.partition('/')[2]} …")

    return show


def ask(
    archive: Archive,
    run: Run,
    settings: Settings,
    *,
    devices: JudgeDevices | None = None,
    judge: bool = True,
    say: Say = lambda line: None,
) -> AskResult:
    """Continue a run as far as answers and verdicts reach.

    Without `devices`, those of the settings are looked for when a kernel is to be judged. Without `judge`, kernels
    wait for another machine.

    Raises:
        UsageError: another process works on the run, or the run belongs to another device.
        EvaluatorError, ArchiveError: infrastructure failure; everything finished is in the archive.
    """
    check_askable(settings)
    evaluation = settings.evaluation.model_copy(update={"baselines": False})
    settings = settings.model_copy(update={"proposer": "ask", "evaluation": evaluation})
    with run_lock(archive, run, patience=PATIENCE):
        births = {birth.id for birth in archive.runs.births(run.id, texts=False)}
        judged = archive.runs.evaluations(run.id)
        reason, interaction = _advance(archive, run, settings, devices, judge, say)
        found = archive.runs.evaluations(run.id)
        news = [
            (birth, found.get(birth.kernel or ""))
            for birth in archive.runs.births(run.id, texts=False)
            if birth.id not in births or (birth.kernel in found and birth.kernel not in judged)
        ]
        return AskResult(
            run=run,
            reason=reason,
            open=tuple(interaction.ordered()),
            waiting=tuple(pending_kernels(archive, run)),
            news=tuple(news),
        )


def check_askable(settings: Settings) -> None:
    """Raises UsageError: people and agents cannot write the children of such a run."""
    if settings.search.strategy == "openevolve":
        raise UsageError("strategy openevolve asks its models by itself; ask a run of another strategy")
    check_strategy(settings, WRITING)


def _advance(
    archive: Archive, run: Run, settings: Settings, devices: JudgeDevices | None, judge: bool, say: Say
) -> tuple[StopReason, Interaction]:
    problem = archive.problems.get(run.problem)

    def session(devices: JudgeDevices, absent: AbsentJudges | None) -> tuple[StopReason, Interaction]:
        interaction = Interaction(questions=archive.questions(run))
        # Replies that a model has given before stay valid.
        make = cached(lambda one, rate_limit: NoModel(), archive.replies(run))
        ending = run_session(
            RunContext(archive=archive, run=run, problem=problem, device=devices.device, settings=settings),
            devices,
            observer=None if absent else _judging_lines(say),
            say=say,
            absent=absent,
            proposers=build_proposers(settings, make, interaction),
        )
        return ending.reason, interaction

    # Judges take seconds to start and are often not needed, so the first session has none; but not in a run that has
    # just begun.
    absent = AbsentJudges(archive=archive, run=run)
    known = _known_devices(archive, run) or devices
    if known is not None and (not judge or archive.run_view(run).last_ended() is not None):
        result = session(known, absent)
        if not judge or not absent.needed:
            return result
    try:
        devices = devices or find_judge_devices(settings)
    except EvaluatorError as error:
        raise UsageError(f"run {run.id} is judged on {run.device}: {error}. Or {_ELSEWHERE}") from None
    if devices.device.fingerprint != run.device:
        raise UsageError(f"run {run.id} is judged on {run.device}; this is {devices.device.fingerprint}: {_ELSEWHERE}")
    return session(devices, None if judge else absent)


def _known_devices(archive: Archive, run: Run) -> JudgeDevices | None:
    """A run's device as the archive knows it; it need not be in this machine, and finding it does not import torch."""
    known = archive.device(run.device)
    if known is None:
        return None
    device = Device(type=known.type, index=0, fingerprint=known.fingerprint, description=known.description)
    return JudgeDevices(devices=(device,), device=device)
