"""A benchmark: the problems of a suite, each searched with one budget, or kernels of others judged on them.

The archive is the memory: what is there is not done again, so the same command goes on after any end. The judges serve
one problem after the other. What goes wrong with one problem is its result, and the next one follows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from kbevolve.archive.formatting import verdict_words
from kbevolve.archive.records import Confirmation, Evaluation, Kernel, ProblemCard, Run, StopReason, Verdict
from kbevolve.archive.report.comparison import track
from kbevolve.archive.report.curves import curve_of
from kbevolve.archive.report.scores import ProblemResult
from kbevolve.archive.store import Archive
from kbevolve.archive.throughput import device_seconds_of
from kbevolve.configs.flaws import known_flaws
from kbevolve.configs.prices import read_prices
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import Settings
from kbevolve.configs.suites import SuiteProblem
from kbevolve.evaluators.analysis.rates import roofline_share
from kbevolve.evaluators.timing.baselines import DEFAULT_FLAGS, EAGER, Baseline, best, over_best
from kbevolve.evolve.runs.batch import judged
from kbevolve.evolve.runs.comparison import ComparedRun, KnownRuns, dollars_of, known_run, planned
from kbevolve.evolve.runs.evaluators import JudgeDevices, Judges, open_judges
from kbevolve.evolve.runs.kernel_files import read_kernels

#: Flags of a card for which the judge refuses every kernel.
_REFUSED = ("degenerate", "random")
#: Flags of a card that are flaws of the problem, as `configs.flaws` lists them.
_FLAWS = (*_REFUSED, "low-signal", "reducible", "dead-code")
#: Characters of a failure's message.
_MESSAGE = 120


class Searching(Protocol):
    """Makes a run, or goes on with it, with these judges; returns the run and why it stopped.

    `meanwhile` is as in `session.run_session`.
    """

    def __call__(  # noqa: D102
        self, problem: Problem, planned: ComparedRun, judges: Judges, /, *, meanwhile: Callable[[], None]
    ) -> tuple[Run, StopReason]: ...


@dataclass(slots=True, kw_only=True)
class Bench:
    """What both kinds of benchmark share: judges for all problems, and their cards with the baselines."""

    archive: Archive
    devices: JudgeDevices
    settings: Settings
    #: "module:Class" of the judges; None for `judging.judge.Judge`.
    judge: str | None = None
    #: Whether problems are analysed again that could not be judged.
    fresh: bool = False
    #: Shows a line to the user.
    say: Callable[[str], None] = lambda line: None
    _judges: Judges | None = field(default=None, init=False)

    def judges(self) -> Judges:
        """The judges, started when they are first needed."""
        if self._judges is None:
            self._judges = open_judges(self.devices, self.settings, judge=self.judge)
        return self._judges

    def close(self) -> None:
        """End the judges; the next need starts others. May be called twice."""
        if self._judges is not None:
            self._judges.close()
            self._judges = None

    def known_card(self, problem: Problem) -> ProblemCard | None:
        """The card in the archive."""
        return self.archive.problems.card(
            problem.id, self.devices.device.fingerprint, self.settings.evaluation.precision
        )

    def is_refused(self, problem: Problem) -> bool:
        """Whether the archive knows that no kernel of the problem can be judged."""
        return bool(self._refusal(self.known_card(problem)))

    def analyse(self, problem: Problem) -> bool:
        """Write the card to the archive, unless it has one; returns whether kernels can be judged."""
        card = self.known_card(problem)
        if card is None or (self.fresh and self._refusal(card)):
            self.archive.add_problem(problem)
            card = self.judges().card(problem)
            self.archive.add_card(card)
        return not self._refusal(card)

    def measure_baselines(self, problem: Problem) -> None:
        """Write the baselines of a problem with a card to the archive, unless it has them or none are wanted."""
        card = self.known_card(problem)
        if self.settings.evaluation.baselines and card is not None and not card.baselines:
            found = self.judges().baselines(problem)
            for one in found:
                if one.failure:
                    self.say(f"{problem.name}: without the baseline {one.name}: {one.failure}")
            measured = {one.name: one.speedup for one in found if one.speedup is not None}
            self.archive.add_card(replace(card, baselines={EAGER: 1.0, **measured}))

    def empty(self, one: SuiteProblem, reason: str = "") -> ProblemResult:
        """A result without a kernel; `reason` is why no kernel can be judged, if the card says nothing."""
        card = self.known_card(one.problem) if one.problem else None
        kinds = [flaw.kind for flaw in known_flaws(one.problem)] if one.problem else []
        kinds += [flag for flag in card.flags if flag in _FLAWS] if card else []
        return ProblemResult(
            problem=one.name,
            level=one.level,
            title=one.title,
            not_judged=one.error or self._refusal(card) or reason,
            flaws=tuple(dict.fromkeys(kinds)),
        )

    def with_kernel(
        self, result: ProblemResult, problem: Problem, found: Evaluation, confirmation: Confirmation | None = None
    ) -> ProblemResult:
        """The result with a correct kernel and its times, from the confirmation where there is one."""
        measured, precision_class = confirmation or found.timing, found.accuracy.precision_class
        card, speedup, time_ms = self.known_card(problem), measured.speedup, measured.time_ms
        assert speedup, "a correct kernel has one"
        assert time_ms, "a correct kernel has one"
        known = [Baseline(name=name, speedup=ratio) for name, ratio in card.baselines.items()] if card else []
        # On a CPU no default flag lowers the precision.
        default = 1.0 if self.devices.device.type == "cpu" else (card.baselines.get(DEFAULT_FLAGS) if card else None)
        return replace(
            result,
            kernel=found.kernel,
            speedup=speedup,
            speedup_low=measured.speedup_low,
            speedup_high=measured.speedup_high,
            over_default=speedup / default if default else None,
            over_best=over_best(speedup, known) if known else None,
            best_baseline=best(known).name if known else None,
            time_ms=time_ms,
            precision_class=precision_class,
            floor_share=roofline_share(card, precision_class, time_ms),
            eager_floor_share=roofline_share(card, precision_class, time_ms * speedup),
        )

    def _refusal(self, card: ProblemCard | None) -> str:
        if card is None or self.settings.evaluation.force:
            return ""
        return next((f"{flag}: {card.flags[flag].rstrip('.')}" for flag in _REFUSED if flag in card.flags), "")


@dataclass(slots=True, kw_only=True)
class SearchBench(Bench):
    """Searches each problem, as a run of its own."""

    #: Makes or continues a run.
    search: Searching
    known: KnownRuns

    def run_of(self, problem: Problem) -> ComparedRun:
        """The run that the problem needs, or has."""
        # The baselines were measured before the run.
        evaluation = self.settings.evaluation.model_copy(update={"baselines": False})
        return planned(self.known, problem, self.settings.model_copy(update={"evaluation": evaluation}))

    def is_missing(self, one: SuiteProblem) -> bool:
        """Whether there is something to do."""
        return one.problem is not None and not self.run_of(one.problem).over and self._may_be_judged(one.problem)

    def work(self, one: SuiteProblem) -> None:
        """Make the run, or finish it.

        Raises:
            KeyboardInterrupt: the user stopped it.
            KBEvolveError: infrastructure failure.
        """
        assert one.problem is not None, "else nothing is missing"
        if self.analyse(one.problem):
            # They need the device and torch.compile's kernels need processors, for half a minute each.
            baselines = partial(self.measure_baselines, one.problem)
            run, reason = self.search(one.problem, self.run_of(one.problem), self.judges(), meanwhile=baselines)
            self.known |= known_run(self.archive.runs.summary(run))
            if reason is StopReason.INTERRUPTED:
                raise KeyboardInterrupt

    def result(self, one: SuiteProblem, reason: str = "") -> ProblemResult:
        """What the archive knows."""
        result, run = self.empty(one, reason), self.run_of(one.problem).run if one.problem else None
        if one.problem is None or run is None or result.not_judged:
            return result
        archive, curve = self.archive, curve_of(self.archive, run)
        cost = track(curve, archive.runs.births(run.id, texts=False), strategy=self.settings.search.strategy)
        evaluations = {point.evaluation.kernel: point.evaluation for point in curve.points}
        result = replace(
            result,
            run=run.id,
            evaluations=cost.evaluations,
            correct=sum(found.verdict is Verdict.CORRECT for found in evaluations.values()),
            device_seconds=cost.device_seconds,
            wall_seconds=archive.runs.wall_seconds(run.id),
            tokens=sum(sum(used) for used in cost.tokens.values()),
            dollars=dollars_of([cost], read_prices(self.settings.budget.prices)),
        )
        failed = archive.runs.failed(run.id)
        fittest = [step.point.evaluation for step in curve.steps if step.point.evaluation.kernel not in failed]
        if curve.champion is None and not fittest:
            return replace(result, failure=_failure(list(evaluations.values())))
        found = evaluations[curve.champion.kernel] if curve.champion else fittest[-1]
        result = self.with_kernel(result, one.problem, found, curve.champion)
        # The best of many measurements is partly luck: what won no contest against eager is not faster than eager.
        held = self.settings.evaluation.confirm_rounds > 0
        return _at_most_eager(result) if held and curve.champion is None else result

    def _may_be_judged(self, problem: Problem) -> bool:
        return self.fresh or not self.is_refused(problem)


@dataclass(slots=True, kw_only=True)
class FileBench(Bench):
    """Judges kernels that others wrote; the best of several for a problem counts."""

    #: Name of a problem -> the files for it.
    files: Mapping[str, Sequence[Path]]
    #: Called with each file's name and evaluation.
    report: Callable[[str, Evaluation], None] = lambda file, evaluation: None

    def is_missing(self, one: SuiteProblem) -> bool:
        """Whether there is something to do."""
        if one.problem is None or (self.is_refused(one.problem) and not self.fresh):
            return False
        return self.known_card(one.problem) is None or bool(self._missing(one))

    def work(self, one: SuiteProblem) -> None:
        """Judge the kernels that have no verdict; what it raises is as for `SearchBench.work`."""
        assert one.problem is not None, "else nothing is missing"
        if self.analyse(one.problem):
            self.measure_baselines(one.problem)
            judges, missing = self.judges(), self._missing(one)
            for file, found in judged(partial(judges.evaluate, one.problem), missing, judges.width):
                self.archive.add_found([(one.problem, missing[file], found)])
                self.report(file, found)

    def result(self, one: SuiteProblem, reason: str = "") -> ProblemResult:
        """What the archive knows."""
        kernels, unreadable = read_kernels(self.files.get(one.name, ()))
        known = [self._known(one.problem, kernel) for kernel in kernels.values()] if one.problem else []
        evaluations = [found for found in known if found is not None]
        # A failure over one kernel hides no verdict of the others.
        result = self.empty(one, "" if evaluations else reason)
        if one.problem is None or result.not_judged:
            return result
        correct = [found for found in evaluations if found.verdict is Verdict.CORRECT]
        result = replace(
            result,
            evaluations=len(evaluations),
            correct=len(correct),
            device_seconds=sum(map(device_seconds_of, evaluations)),
        )
        if not correct:
            failure = unreadable[0] if unreadable and not evaluations else _failure(evaluations, none="no kernel")
            return replace(result, failure=failure)
        fastest = max(correct, key=lambda found: found.timing.speedup_low or 0.0)
        return self.with_kernel(result, one.problem, fastest)

    def _missing(self, one: SuiteProblem) -> dict[str, Kernel]:
        """File -> kernel, of those without a verdict; each kernel once."""
        assert one.problem is not None, "it was read"
        kernels, _ = read_kernels(self.files.get(one.name, ()))
        distinct = {kernel.id: file for file, kernel in reversed(kernels.items())}
        return {
            file: kernel
            for file, kernel in kernels.items()
            if distinct[kernel.id] == file and self._known(one.problem, kernel) is None
        }

    def _known(self, problem: Problem, kernel: Kernel) -> Evaluation | None:
        fingerprint, precision = self.devices.device.fingerprint, self.settings.evaluation.precision
        return self.archive.kernels.evaluation(kernel.id, problem.id, fingerprint, precision)


def _failure(evaluations: Sequence[Evaluation], none: str = "nothing but the reference is correct") -> str:
    """The last failure in one line."""
    failed = [found for found in evaluations if found.verdict is not Verdict.CORRECT]
    if not failed:
        return none
    message = " ".join(failed[-1].message.split())
    cut = message if len(message) <= _MESSAGE else message[: _MESSAGE - 1] + "…"
    return f"{verdict_words(failed[-1].verdict)}{': ' if cut else ''}{cut}"


def _at_most_eager(result: ProblemResult) -> ProblemResult:
    """The result of a kernel that was not confirmed to be faster than eager: it counts as at most as fast."""
    factor = min(1.0, 1.0 / (result.speedup or 1.0))
    names = ("speedup", "speedup_low", "speedup_high", "over_default", "over_best")
    changes: dict[str, Any] = {name: value * factor for name in names if (value := getattr(result, name)) is not None}
    return replace(result, **changes)
