"""Strategies at equal budget: which runs a comparison needs, which the archive has, and the table of results."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbevolve.archive.records import Run, StopReason
from kbevolve.archive.report.comparison import Average, Track, against, checkpoints, reached, track
from kbevolve.archive.report.curves import curve_of
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

    strategy: str
    seed: int
    settings: Settings
    #: The equal run in the archive; None when there is none yet.
    run: Run | None = None
    #: Whether that run is over.
    over: bool = False


def compared_runs(
    archive: Archive,
    problem: Problem,
    device: str,
    settings: Settings,
    *,
    strategies: Sequence[str],
    seeds: int,
) -> list[ComparedRun]:
    """The runs of a comparison, seed by seed, so that one that is interrupted has compared something.

    Args:
        archive: may have some of the runs.
        problem: the problem.
        device: fingerprint of the device.
        settings: of all runs, except strategy and seed.
        strategies: their names.
        seeds: how many, from the seed of the settings on.
    """
    summaries = [one for one in archive.runs.summaries() if one.run.problem == problem.id and one.run.device == device]
    known: dict[str, tuple[Run, bool]] = {}
    for summary in summaries:  # newest first: the oldest of equal runs counts
        identity = _identity(Settings.model_validate_json(summary.run.settings))
        known[identity] = summary.run, summary.stopped not in NOT_OVER
    found = []
    for seed in range(settings.search.seed, settings.search.seed + seeds):
        for strategy in strategies:
            own = settings.search.model_copy(update={"strategy": strategy, "seed": seed})
            chosen = fitted(settings.model_copy(update={"search": own}))
            run, over = known.get(_identity(chosen), (None, False))
            found.append(ComparedRun(strategy=strategy, seed=seed, settings=chosen, run=run, over=over))
    return found


def _identity(settings: Settings) -> str:
    # As JSON, which has no credentials: the settings in the archive have none either.
    return settings.model_dump_json(exclude={"work": True, "llm": set(_REACHED)})


def tracks(archive: Archive, runs: Iterable[tuple[str, Run]]) -> dict[str, list[Track]]:
    """Strategy -> the tracks of its runs, given as strategy and run."""
    found: dict[str, list[Track]] = {}
    for strategy, run in runs:
        births = archive.runs.births(run.id, texts=False)
        found.setdefault(strategy, []).append(track(curve_of(archive, run), births, strategy=strategy))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyRow:
    """A strategy in a comparison."""

    strategy: str
    #: Its runs.
    tracks: tuple[Track, ...]
    #: Evaluations -> the best speedup so far (lower bound); None where a seed had no correct kernel.
    at: Mapping[int, Average | None]
    #: The final speed relative to that of the first strategy; None for the first one.
    against_first: Average | None
    #: Dollars of all runs; None when a price is unknown.
    dollars: float | None

    @property
    def valid(self) -> float | None:
        """Share of its judged children that are correct, 0 to 1; None without any."""
        judged = sum(one.judged for one in self.tracks)
        return sum(one.correct for one in self.tracks) / judged if judged else None

    @property
    def duplicates(self) -> float | None:
        """Share of its children that are duplicates, 0 to 1; None without any."""
        children = sum(one.children for one in self.tracks)
        return sum(one.duplicates for one in self.tracks) / children if children else None

    @property
    def tokens(self) -> int:
        """Sent and received by all runs."""
        return sum(sum(used) for one in self.tracks for used in one.tokens.values())

    def as_json(self) -> dict[str, Any]:
        """For scripts."""
        return {
            "at": {str(count): _plain(one) for count, one in self.at.items()},
            "against_first": _plain(self.against_first),
            "published": [one.published for one in self.tracks],
            "confirmed": [one.confirmed for one in self.tracks],
            "seeds": [one.seed for one in self.tracks],
            "runs": [one.run for one in self.tracks],
            "evaluations": [one.evaluations for one in self.tracks],
            "children": sum(one.children for one in self.tracks),
            "valid": self.valid,
            "duplicates": self.duplicates,
            "device_seconds": sum(one.device_seconds for one in self.tracks),
            "tokens": self.tokens,
            "dollars": self.dollars,
        }


def strategy_rows(found: Mapping[str, Sequence[Track]], *, budget: int, prices: Prices) -> list[StrategyRow]:
    """The rows of the table, in the order of the strategies.

    Args:
        found: strategy -> its tracks.
        budget: evaluations of a run.
        prices: of models.
    """
    first = next(iter(found.values()))
    return [
        StrategyRow(
            strategy=strategy,
            tracks=tuple(runs),
            at={count: reached(runs, count) for count in checkpoints(budget)},
            against_first=None if runs is first else against(runs, first, budget),
            dollars=_dollars(runs, prices),
        )
        for strategy, runs in found.items()
    ]


def _dollars(runs: Sequence[Track], prices: Prices) -> float | None:
    total = 0.0
    for model, used in (item for one in runs for item in one.tokens.items()):
        price = prices.of(model)
        if price is None:
            return None
        total += price.dollars(*used)
    return total


def _plain(one: Average | None) -> dict[str, float | None] | None:
    return None if one is None else {"mean": one.mean, "low": one.low, "high": one.high}
