"""Why a run stops: checked whenever a generation closes."""

from collections.abc import Callable, Sequence

from kbevolve.archive.champion import champion_of
from kbevolve.archive.records import Confirmation, StopReason, Verdict
from kbevolve.configs.settings import Settings
from kbevolve.evolve.search.budget import Budget
from kbevolve.evolve.search.confirmation import Contests
from kbevolve.evolve.state.context import RunContext
from kbevolve.evolve.state.population import Population
from kbevolve.islands.stagnation import Stage, stage_of, window

#: Generations in a row without a new attempt on any island, after which a run stops: one may be bad luck.
EXHAUSTED_GENERATIONS = 3


class Stopping:
    """Finds the reason to stop of one run.

    Args:
        context: the run.
        population: its kernels and counts.
        budget: its limits.
        contests: its contests.
        elapsed: returns the seconds that all sessions of the run have lasted.
    """

    def __init__(
        self,
        context: RunContext,
        *,
        population: Population,
        budget: Budget,
        contests: Contests,
        elapsed: Callable[[], float],
    ) -> None:
        self._context = context
        self._population = population
        self._budget = budget
        self._contests = contests
        self._window = window_of(context.settings)
        self._elapsed = elapsed
        self._replayed = -1
        self._confirmed: Sequence[Confirmation] = ()

    def recall(self, confirmed: Sequence[Confirmation], *, replayed: int) -> None:
        """Use the results of earlier sessions: confirmations of kernels that did not fail later, and the newest closed
        generation."""
        self._confirmed, self._replayed = confirmed, replayed

    @property
    def stage(self) -> Stage:
        """How the run reacts to its stagnation."""
        return stage_of(self._population.memory().stalled, self._window)

    def reason(self, generation: int) -> StopReason | None:
        """The reason to stop after a generation; None to go on."""
        if not self._population.totals.verdicts[Verdict.CORRECT]:
            return StopReason.NO_SEED
        if generation - self._population.totals.newest_child >= EXHAUSTED_GENERATIONS:
            return StopReason.EXHAUSTED
        speedup, share = self._reached(generation)
        spent = self._budget.spent(
            self._population.totals, wall_seconds=self._elapsed(), speedup=speedup, roofline_share=share
        )
        return self._budget.exceeded(spent) or (StopReason.STAGNATION if self.stage is Stage.OVER else None)

    def _reached(self, generation: int) -> tuple[float | None, float | None]:
        """The speedup that was published when a generation closed, and the share of the roofline of that kernel.

        Without contests, both are of the best kernel's first evaluation.
        """
        limits = self._budget.limits
        if limits.target_speedup is None and limits.roofline_share is None:
            return None, None  # saves a query in every generation
        if self._contests.held:
            champion = self._contests.champion
            if generation <= self._replayed:
                champion = champion_of([one for one in self._confirmed if one.generation <= generation])
            speedup, kernel = (champion.speedup, champion.kernel) if champion else (None, None)
        else:
            best = self._population.best(apart_from=self._context.reference)
            speedup, kernel = (best.evaluation.timing.speedup, best.kernel.id) if best else (None, None)
        found = self._context.view.evaluation(kernel) if kernel else None
        return speedup, found.profile.roofline_share if found and found.profile else None


def window_of(settings: Settings) -> int:
    """Evaluations without an improvement after which a run enters its next stage; 0 for strategies without stages."""
    if settings.search.strategy != "evolve":
        return 0
    evaluations = settings.budget.evaluations or settings.search.generations * settings.search.islands
    return window(evaluations, settings.search.patience)
