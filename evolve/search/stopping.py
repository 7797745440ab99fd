"""When a run is over: what is looked at whenever a generation is closed."""

from collections.abc import Callable, Sequence

from kbevolve.archive.champion import champion_of
from kbevolve.archive.records import Confirmation, StopReason, Verdict
from kbevolve.archive.run_view import Ledger
from kbevolve.configs.settings import Settings
from kbevolve.evolve.search.budget import Budget
from kbevolve.evolve.search.confirming import Confirming
from kbevolve.evolve.state.population import Population
from kbevolve.islands.stagnation import Stage, stage_of, window

#: Generations in a row in which no island had anything new, after which a run stops: one may be bad luck.
EXHAUSTED_GENERATIONS = 3


class Stopping:
    """Finds the reason to stop of one run.

    Args:
        population: what the run knows.
        ledger: what the archive holds of it.
        budget: its limits.
        confirming: its contests; None when it has none, and publishes what first evaluations found.
        reference: id of the kernel that is the reference itself.
        window: evaluations without an improvement after which it takes another stage (`window_of`).
        elapsed: tells how many seconds all sittings at the run have lasted by now.
    """

    def __init__(
        self,
        *,
        population: Population,
        ledger: Ledger,
        budget: Budget,
        confirming: Confirming | None,
        reference: str,
        window: int,
        elapsed: Callable[[], float],
    ) -> None:
        self._population = population
        self._ledger = ledger
        self._budget = budget
        self._confirming = confirming
        self._reference = reference
        self._window = window
        self._elapsed = elapsed
        self._replayed = -1
        self._confirmed: Sequence[Confirmation] = ()

    def remember(self, confirmed: Sequence[Confirmation], *, replayed: int) -> None:
        """Take note of what earlier sittings left: the confirmations of kernels that did not fail later, and the newest
        generation that was closed."""
        self._confirmed, self._replayed = confirmed, replayed

    @property
    def stage(self) -> Stage:
        """What the run does about its stagnation."""
        return stage_of(self._population.memory().stalled, self._window)

    def reason(self, generation: int) -> StopReason | None:
        """The reason to stop after a generation; None to go on."""
        if not self._population.verdicts[Verdict.CORRECT]:
            return StopReason.NO_SEED
        if generation - self._population.newest_fruit >= EXHAUSTED_GENERATIONS:
            return StopReason.EXHAUSTED
        speedup, share = self._reached(generation)
        spent = self._budget.spent(
            self._population, wall_seconds=self._elapsed(), speedup=speedup, roofline_share=share
        )
        return self._budget.exceeded(spent) or (StopReason.STAGNATION if self.stage is Stage.OVER else None)

    def _reached(self, generation: int) -> tuple[float | None, float | None]:
        """The speedup that was published when a generation was closed, and that kernel's share of the roofline.

        A confirmed one; in a run without contests, what the first evaluation of the best kernel found.
        """
        if self._budget.limits.target_speedup is None and self._budget.limits.roofline_share is None:
            return None, None  # not worth a look at the archive in every generation
        if self._confirming is not None:
            champion = self._confirming.champion
            if generation <= self._replayed:
                champion = champion_of([one for one in self._confirmed if one.generation <= generation])
            speedup, kernel = (champion.speedup, champion.kernel) if champion else (None, None)
        else:
            best = self._population.best(apart_from=self._reference)
            speedup, kernel = (best.evaluation.speedup, best.kernel.id) if best else (None, None)
        found = self._ledger.evaluation(kernel) if kernel else None
        return speedup, found.profile.roofline_share if found and found.profile else None


def window_of(settings: Settings) -> int:
    """Evaluations without an improvement after which a run takes another stage. Only the default strategy has any."""
    if settings.search.strategy != "evolve":
        return 0
    evaluations = settings.budget.evaluations or settings.search.generations * settings.search.islands
    return window(evaluations, settings.search.patience)
