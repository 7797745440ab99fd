"""Strategies at equal budget: which runs a comparison needs, which the archive has, and the table of results."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbevolve.archive.records import Run, StopReason
from kbevolve.archive.report.comparison import Track, against, checkpoints, reached, track
from kbevolve.archive.report.curves import curve_of
from kbevolve.archive.run_queries import RunSummary
from kbevolve.archive.store import Archive
from kbevolve.configs.prices import Prices
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import Settings
from kbevolve.evolve.strategies import fitted

#: Generations of a run for each of its evaluations: models repeat themselves, and duplicates are not judged.
GENERATIONS = 4
#: Reasons for which a run stopped before its end.
NOT_OVER = frozenset({None, StopReason.INTERRUPTED, StopReason.PROPOSER, StopReason.EVALUATOR})
#: Settings that do not change the results of a run: how the model is reached.
_REACHED = ("api_base", "api_key_variable", "timeout", "retries", "requests_per_minute", "parallel")


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRun:
    """A run that a comparison needs."""

    settings: Settings
    #: The equal run in the archive; None when there is none yet.
    run: Run | None = None
    #: Whether that run is over.
    over: bool = False

    @property
    def name(self) -> str:
        """Strategy and seed."""
        return f"{self.settings.search.strategy}, seed {self.settings.search.seed}"


#: Problem id and settings of a run -> the run, and whether it is over.
KnownRuns = dict[tuple[str, str], tuple[Run, bool]]


def known_runs(archive: Archive, device: str, problems: Collection[str]) -> KnownRuns:
    """The runs of these problems (ids) on a device (fingerprint); of equal runs the oldest."""
    found: KnownRuns = {}
    for summary in archive.runs.summaries():  # newest first: the oldest of equal runs counts
        if summary.run.problem in problems and summary.run.device == device:
            found |= known_run(summary)
    return found


def known_run(summary: RunSummary) -> KnownRuns:
    """The entry of one run."""
    run = summary.run
    identity = _identity(Settings.model_validate_json(run.settings))
    return {(run.problem, identity): (run, summary.stopped not in NOT_OVER)}


def planned(known: KnownRuns, problem: Problem, settings: Settings) -> ComparedRun:
    """The run of a problem with these settings, with the known run that is equal."""
    chosen = fitted(settings)
    run, over = known.get((problem.id, _identity(chosen)), (None, False))
    return ComparedRun(settings=chosen, run=run, over=over)


def compared_runs(
    archive: Archive, problem: Problem, device: str, settings: Settings, *, strategies: Sequence[str], seeds: int
) -> list[ComparedRun]:
    """The runs of a comparison, seed by seed, so that one that is interrupted has compared something.

    `seeds` is how many, from the seed of the settings on. The archive may have some of the runs.
    """
    known = known_runs(archive, device, {problem.id})
    found = []
    for seed in range(settings.search.seed, settings.search.seed + seeds):
        for strategy in strategies:
            own = settings.search.model_copy(update={"strategy": strategy, "seed": seed})
            found.append(planned(known, problem, settings.model_copy(update={"search": own})))
    return found


def _identity(settings: Settings) -> str:
    # Which device of a model judged does not matter. As JSON, which has no credentials: those in the archive have none.
    return settings.model_dump_json(exclude={"device": True, "work": True, "kernelbench": True, "llm": set(_REACHED)})


def tracks(archive: Archive, runs: Iterable[tuple[str, Run]]) -> dict[str, list[Track]]:
    """Strategy -> the tracks of its runs, given as strategy and run."""
    found: dict[str, list[Track]] = {}
    for strategy, run in runs:
        births = archive.runs.births(run.id, texts=False)
        found.setdefault(strategy, []).append(track(curve_of(archive, run), births, strategy=strategy))
    return found


def strategy_rows(found: Mapping[str, Sequence[Track]], *, budget: int, prices: Prices) -> dict[str, dict[str, Any]]:
    """Strategy -> the figures of its runs, for the table and for scripts; `budget` is the evaluations of a run."""
    first = next(iter(found.values()))
    return {
        strategy: {
            # Evaluations -> the best speedup so far (lower bound); None where a seed had no correct kernel.
            "at": {count: reached(runs, count) for count in checkpoints(budget)},
            # The final speed relative to that of the first strategy; None for the first one.
            "against_first": None if runs is first else against(runs, first, budget),
            "published": [one.published for one in runs],
            "confirmed": [one.confirmed for one in runs],
            "seeds": [one.seed for one in runs],
            "runs": [one.run for one in runs],
            "evaluations": [one.evaluations for one in runs],
            "children": sum(one.children for one in runs),
            # Shares, 0 to 1, of correct kernels among the judged children, and of duplicates among all children.
            "valid": _share(sum(one.correct for one in runs), sum(one.judged for one in runs)),
            "duplicates": _share(sum(one.duplicates for one in runs), sum(one.children for one in runs)),
            "device_seconds": sum(one.device_seconds for one in runs),
            "tokens": sum(sum(used) for one in runs for used in one.tokens.values()),
            # None when a price is unknown.
            "dollars": dollars_of(runs, prices),
        }
        for strategy, runs in found.items()
    }


def _share(some: int, every: int) -> float | None:
    return some / every if every else None


def dollars_of(runs: Sequence[Track], prices: Prices) -> float | None:
    """What the models of these runs cost; None when a price is unknown."""
    total = 0.0
    for model, used in (item for one in runs for item in one.tokens.items()):
        price = prices.of(model)
        if price is None:
            return None
        total += price.dollars(*used)
    return total
