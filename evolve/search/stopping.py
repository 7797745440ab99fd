"""Why a run stops: checked whenever a generation closes."""

from dataclasses import dataclass

from kbevolve.archive.records import StopReason, Verdict
from kbevolve.configs.settings import Settings
from kbevolve.evolve.search.budget import Budget
from kbevolve.evolve.search.confirmation import Contests
from kbevolve.evolve.search.deadline import Deadline
from kbevolve.evolve.state.context import RunContext
from kbevolve.evolve.state.population import Population
from kbevolve.islands.stagnation import Stage, stage_of, window

#: Generations in a row without a new attempt on any island, after which a run stops: one may be bad luck.
EXHAUSTED_GENERATIONS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """Finds the reason to stop of one run."""

    context: RunContext
    population: Population
    budget: Budget
    contests: Contests
    deadline: Deadline

    @property
    def stage(self) -> Stage:
        """How the run reacts to its stagnation."""
        return stage_of(self.population.memory().stalled, window_of(self.context.settings))

    def reason(self, generation: int) -> StopReason | None:
        """The reason to stop after a generation; None to go on."""
        if not self.population.totals.verdicts[Verdict.CORRECT]:
            return StopReason.NO_SEED
        if generation - self.population.totals.newest_child >= EXHAUSTED_GENERATIONS:
            return StopReason.EXHAUSTED
        speedup, share = self._reached(generation)
        totals, seconds = self.population.totals, self.deadline.elapsed() + self.deadline.reserve
        spent = self.budget.spent(totals, wall_seconds=seconds, speedup=speedup, roofline_share=share)
        return self.budget.exceeded(spent) or (StopReason.STAGNATION if self.stage is Stage.OVER else None)

    def _reached(self, generation: int) -> tuple[float | None, float | None]:
        """The speedup that was published when a generation closed, and the share of the roofline of that kernel.

        Without contests, both are of the best kernel's first evaluation.
        """
        limits = self.budget.limits
        if limits.target_speedup is None and limits.roofline_share is None:
            return None, None  # saves a query in every generation
        if self.contests.held:
            champion = self.contests.champions.champion_at(generation)
            speedup, kernel = (champion.speedup, champion.kernel) if champion else (None, None)
        else:
            best = self.population.best(apart_from=self.context.reference)
            speedup, kernel = (best.evaluation.timing.speedup, best.kernel.id) if best else (None, None)
        found = self.context.view.evaluation(kernel) if kernel else None
        return speedup, found.profile.roofline_share if found and found.profile else None


def window_of(settings: Settings) -> int:
    """Evaluations without an improvement after which a run enters its next stage; 0 for strategies without stages."""
    if settings.search.strategy != "evolve":
        return 0
    evaluations = settings.budget.evaluations or settings.search.generations * settings.search.islands
    return window(evaluations, settings.search.patience)
