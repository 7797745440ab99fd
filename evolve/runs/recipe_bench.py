"""A benchmark of kernels that others wrote by KernelBench's recipe, for comparison with ours.

Its verdicts go to a file of their own and never to an archive: no search, export or table of kbevolve takes a speedup
of this recipe for one of its own. The file is also the memory, so the same command continues.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from kbevolve.archive.records import Kernel
from kbevolve.archive.report.scores import ProblemResult, scores, share_names
from kbevolve.configs.errors import SettingsError, UsageError
from kbevolve.configs.flaws import known_flaws
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import Settings
from kbevolve.configs.suites import SuiteProblem
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.recipe import Outcome, RecipeVerdict, judge_by_recipe, timing_method
from kbevolve.evolve.runs.evaluators import JudgeDevices
from kbevolve.evolve.runs.kernel_files import read_kernels

#: What every output of the recipe says.
LABEL = "KernelBench's recipe, for comparison only: not kbevolve's verdict, and not safe from hacks"
#: Characters of a failure's message.
_MESSAGE = 120
#: What a result holds of this recipe, beside its speedup.
_SHOWN = ["problem", "level", "title", "not_judged", "flaws", "evaluations", "correct", "kernel", "failure", "time_ms"]


def recipe_device(devices: JudgeDevices, settings: Settings) -> Device:
    """The device on which the recipe runs: the first one.

    Raises:
        SettingsError: it is of another machine, or the recipe cannot run as the settings say.
    """
    if devices.cluster is not None:
        raise SettingsError("--judge kernelbench runs on this machine; leave out --workers ray")
    timing_method(settings.kernelbench, devices.devices[0], settings.evaluation.precision)
    return devices.devices[0]


@dataclass(slots=True, kw_only=True)
class RecipeBench:
    """Judges the kernels of others by KernelBench's recipe; the fastest of several correct ones counts."""

    device: Device
    settings: Settings
    #: Name of a problem -> the files for it.
    files: Mapping[str, Sequence[Path]]
    #: The verdicts, a line of JSON each.
    verdicts: Path
    #: Called with each file's name and verdict.
    report: Callable[[str, RecipeVerdict], None] = lambda file, verdict: None
    _known: dict[str, RecipeVerdict] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Read the verdicts of an earlier session; UsageError when the file is none of ours."""
        if self.verdicts.exists():
            self._known = dict(map(self._of_line, self.verdicts.read_text("utf-8").splitlines()))

    def is_missing(self, one: SuiteProblem) -> bool:
        """Whether a kernel of the problem has no verdict."""
        return one.problem is not None and bool(self._missing(one.problem, one.name))

    def work(self, one: SuiteProblem) -> None:
        """Judge the kernels that have no verdict; EvaluatorError when the reference fails."""
        assert one.problem is not None, "else nothing is missing"
        precision = self.settings.evaluation.precision
        for file, kernel in self._missing(one.problem, one.name).items():
            verdict = judge_by_recipe(one.problem, kernel, self.device, precision, self.settings.kernelbench)
            self._keep(self._key(one.problem, kernel), one.problem, verdict)
            self.report(file, verdict)

    def result(self, one: SuiteProblem, reason: str = "") -> ProblemResult:
        """What the verdicts say; its speedup is the recipe's, over eager with PyTorch's default flags."""
        result = ProblemResult(problem=one.name, level=one.level, title=one.title)
        if one.problem is None:
            return replace(result, not_judged=one.error or reason)
        result = replace(result, flaws=tuple(dict.fromkeys(flaw.kind for flaw in known_flaws(one.problem))))
        kernels, unreadable = read_kernels(self.files.get(one.name, ()))
        keys = [(kernel.id, self._key(one.problem, kernel)) for kernel in kernels.values()]
        found = [(kernel, self._known[key]) for kernel, key in keys if key in self._known]
        if reason and not found:
            return replace(result, not_judged=reason)
        right = [(kernel, verdict) for kernel, verdict in found if verdict.outcome is Outcome.CORRECT]
        result = replace(result, evaluations=len(found), correct=len(right))
        if not right:
            return replace(result, failure=_failure(found[-1][1]) if found else (unreadable or ["no kernel"])[0])
        kernel, best = max(right, key=lambda pair: pair[1].speedup or 0.0)
        time_ms = best.kernel_ms["mean"] if best.kernel_ms else None
        return replace(result, kernel=kernel, speedup=best.speedup, time_ms=time_ms)

    def close(self) -> None:
        """Nothing: each kernel's process has ended."""

    def _missing(self, problem: Problem, name: str) -> dict[str, Kernel]:
        """File -> kernel; each kernel once."""
        missing: dict[str, tuple[str, Kernel]] = {}
        for file, kernel in read_kernels(self.files.get(name, ()))[0].items():
            if (key := self._key(problem, kernel)) not in self._known:
                missing.setdefault(key, (file, kernel))
        return dict(missing.values())

    def _key(self, problem: Problem, kernel: Kernel) -> str:
        """A verdict holds for these, and for nothing else."""
        facts = (problem.id, kernel.id, self.device.fingerprint, self.settings.evaluation.precision)
        return json.dumps([*facts, self.settings.kernelbench.model_dump()])

    def _keep(self, key: str, problem: Problem, verdict: RecipeVerdict) -> None:
        self._known[key] = verdict
        self.verdicts.parent.mkdir(parents=True, exist_ok=True)
        line = {"judge": "kernelbench", "note": LABEL, "problem": problem.name, "key": key, **asdict(verdict)}
        with self.verdicts.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _of_line(self, line: str) -> tuple[str, RecipeVerdict]:
        try:
            facts = json.loads(line)
            values = {one.name: facts[one.name] for one in fields(RecipeVerdict)}
            return str(facts["key"]), RecipeVerdict(**{**values, "outcome": Outcome(values["outcome"])})
        except (ValueError, KeyError, TypeError):
            words = "holds a line that is no verdict; remove it, or give another -o DIR"
            raise UsageError(f"{self.verdicts} {words}") from None


def recipe_facts(result: ProblemResult) -> dict[str, Any]:
    """A result for scripts, with a name for the speedup that no script takes for ours."""
    return {name: getattr(result, name) for name in _SHOWN} | {"kernelbench_speedup": result.speedup}


def recipe_scores(
    results: Sequence[ProblemResult], thresholds: Iterable[float] = (), pass_at: Iterable[int] = ()
) -> dict[str, Any]:
    """As `archive.report.scores.scores`, with what the recipe measures: one baseline, eager with default flags."""
    found = scores(results, thresholds, pass_at)
    levels = {level: _reduced(row) for level, row in found["levels"].items()}
    return {"levels": levels} | {name: _reduced(found[name]) for name in ("all", "without_flawed")}


def _reduced(row: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: row[name] for name in share_names(row)}
    averages = {
        name.replace("_eager", ""): value
        for name, value in row.items()
        if name.startswith(("geomean_eager", "median_eager"))
    }
    return {name: row[name] for name in ("n", "not_judged", "correct", "evaluations")} | kept | averages


def _failure(verdict: RecipeVerdict) -> str:
    message = " ".join(verdict.message.split())
    return f"{verdict.outcome}: {message if len(message) <= _MESSAGE else f'{message[: _MESSAGE - 1]}…'}"
