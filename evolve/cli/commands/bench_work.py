"""The work of a benchmark: one problem after the other, or each of several devices on a problem of its own."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kbevolve.archive.formatting import counted
from kbevolve.archive.records import Run, StopReason
from kbevolve.archive.report.scores import ProblemResult
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import ArchiveError, ProposerError
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import Settings
from kbevolve.configs.suites import SuiteProblem
from kbevolve.evaluators.device.devices import Device
from kbevolve.evolve.cli.render.bench import result_words
from kbevolve.evolve.cli.render.console import Console
from kbevolve.evolve.cli.render.progress import LiveProgress
from kbevolve.evolve.cli.render.tables import say
from kbevolve.evolve.cli.signals import interruptible
from kbevolve.evolve.llm.client import build_language_model
from kbevolve.evolve.llm.replies import cached
from kbevolve.evolve.proposers.factory import build_proposers
from kbevolve.evolve.runs.bench import FileBench, SearchBench
from kbevolve.evolve.runs.comparison import ComparedRun, KnownRuns, known_runs
from kbevolve.evolve.runs.evaluators import SEARCH_JUDGE, JudgeDevices, Judges
from kbevolve.evolve.runs.lanes import Work, work_side_by_side
from kbevolve.evolve.runs.lock import run_lock
from kbevolve.evolve.runs.recipe_bench import RecipeBench
from kbevolve.evolve.runs.session import open_run, run_session
from kbevolve.evolve.state.context import RunContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """Opens the work of one device in a process of its own; implements `OpenWork`."""

    archive: Path
    settings: Settings
    fresh: bool
    problems: tuple[SuiteProblem, ...]

    @contextmanager
    def __call__(self, device: Device, say: Callable[[str], None]) -> Iterator[Work]:
        """The work; `say` shows a line to the user."""
        devices = JudgeDevices(devices=(device,), device=device)
        problems = {one.name: one for one in self.problems}
        with interruptible(), Archive(self.archive) as archive:
            made = search_bench(archive, devices, self.settings, self.problems, fresh=self.fresh, say=say)
            try:
                yield lambda name: _failure_of(made, problems[name])
            finally:
                made.close()


def search_bench(
    archive: Archive,
    devices: JudgeDevices,
    settings: Settings,
    problems: Iterable[SuiteProblem],
    *,
    fresh: bool,
    say: Callable[[str], None],
    console: Console | None = None,
) -> SearchBench:
    """A benchmark that searches these problems; its progress is shown on `console`, if that is a terminal."""
    return SearchBench(
        archive=archive,
        devices=devices,
        settings=settings,
        fresh=fresh,
        say=say,
        judge=SEARCH_JUDGE,
        search=partial(_search, console, archive, devices),
        known=_known(archive, devices, problems),
    )


def do_work(
    console: Console,
    made: SearchBench | FileBench | RecipeBench,
    problems: Sequence[SuiteProblem],
    lane: Lane | None = None,
) -> tuple[list[ProblemResult], bool]:
    """The results of all problems, and whether the user interrupted the work: then of those that have one.

    With `lane`, several devices of one model on this machine work on a problem each.
    """
    missing = {one.name for one in problems if made.is_missing(one)}
    finished = len(problems) - len(missing)
    say(console, f"{counted(len(problems), 'problem')}{f', {finished} of them finished' if finished else ''}.")
    if lane and isinstance(made, SearchBench) and len(missing) > 1 and made.devices.are_apart:
        return _in_lanes(console, made, problems, missing, lane)
    results: list[ProblemResult] = []
    interrupted = False
    with interruptible():
        try:
            for number, one in enumerate(problems, start=1):
                if one.name not in missing:
                    results.append(made.result(one))
                elif not interrupted:
                    try:
                        reason = _failure_of(made, one)
                    except KeyboardInterrupt:
                        interrupted = True
                        continue
                    results.append(made.result(one, reason))
                    say(console, f"[{number}/{len(problems)}] {one.name}: {result_words(results[-1])}")
        finally:
            made.close()
    return results, interrupted


def _in_lanes(
    console: Console, made: SearchBench, problems: Sequence[SuiteProblem], missing: Collection[str], lane: Lane
) -> tuple[list[ProblemResult], bool]:
    """As `do_work`."""
    numbers = {one.name: number for number, one in enumerate(problems, start=1)}
    reasons = {one.name: "" for one in problems if one.name not in missing}

    def done(name: str, reason: str) -> None:
        reasons[name] = reason
        made.known = _known(made.archive, made.devices, problems)  # another process has written it
        result = made.result(problems[numbers[name] - 1], reason)
        say(console, f"[{numbers[name]}/{len(problems)}] {name}: {result_words(result)}")

    interrupted = False
    names = [one.name for one in problems if one.name in missing]
    with interruptible():
        try:
            work_side_by_side(names, made.devices.devices, lane, say=made.say, done=done)
        except KeyboardInterrupt:
            interrupted = True
    made.known = _known(made.archive, made.devices, problems)
    shown = [one for one in problems if one.name in reasons or not made.is_missing(one)]
    return [made.result(one, reasons.get(one.name, "")) for one in shown], interrupted


def _known(archive: Archive, devices: JudgeDevices, problems: Iterable[SuiteProblem]) -> KnownRuns:
    return known_runs(archive, devices.device.fingerprint, {one.problem.id for one in problems if one.problem})


def _failure_of(made: SearchBench | FileBench | RecipeBench, one: SuiteProblem) -> str:
    """Do what is missing for a problem; why that failed, "" when it did not."""
    try:
        made.work(one)
    except (ProposerError, ArchiveError):
        raise  # no other problem would do better
    except Exception as error:
        made.close()  # judges that failed may be broken
        return " ".join(str(error).split()) or type(error).__name__
    return ""


def _search(
    console: Console | None,
    archive: Archive,
    devices: JudgeDevices,
    problem: Problem,
    one: ComparedRun,
    judges: Judges,
    *,
    meanwhile: Callable[[], None],
) -> tuple[Run, StopReason]:
    """Make the run of a problem, or continue it."""
    run = one.run or open_run(archive, problem, devices.device, one.settings)
    context = RunContext(archive=archive, run=run, problem=problem, device=devices.device, settings=one.settings)
    live = LiveProgress(context, devices, console) if console and console.is_terminal else None
    proposers = build_proposers(one.settings, cached(build_language_model, archive.replies(run)))
    with run_lock(archive, run), live or nullcontext():
        ending = run_session(context, devices, observer=live, shared=judges, proposers=proposers, meanwhile=meanwhile)
    return run, ending.reason
