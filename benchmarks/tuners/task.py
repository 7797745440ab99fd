"""A landscape as a tuner sees it: parameters with values, and the speed of a setting, for a number of evaluations."""

import math
import statistics
from dataclasses import dataclass, field
from random import Random

from kbevolve.evolve.simulation.landscape import Landscape, Program, ProgramFailure


class Spent(Exception):
    """All evaluations are spent."""


@dataclass(kw_only=True)
class TuningTask:
    """One search. A setting that was measured before costs nothing, and one that does not exist neither."""

    landscape: Landscape
    seed: int
    #: Evaluations, the start's among them.
    budget: int
    #: Log speedup of each setting as it was measured, None for a failure; in order.
    found: dict[Program, float | None] = field(default_factory=dict)
    #: How often a setting was asked for that costs nothing, in a row.
    idle: int = 0

    @property
    def start(self) -> Program:
        """What every search begins with."""
        return self.landscape.start()[0]

    def measure(self, setting: Program) -> float | None:
        """The log speedup as measured; None for a failure and for what does not exist.

        The noise of a setting depends on the seed alone, so it is the same for all tuners.

        Raises:
            Spent: the budget is spent, or nothing new was asked for in 2000 calls.
        """
        if setting in self.found or not self.landscape.exists(setting):
            self.idle += 1
            if self.idle > 2000:
                raise Spent
            return self.found.get(setting)
        if len(self.found) >= self.budget:
            raise Spent
        self.idle = 0
        outcome = self.landscape.measure(setting, Random(f"{self.seed}/{setting}"))
        self.found[setting] = None if isinstance(outcome, ProgramFailure) else -statistics.fmean(outcome)
        if len(self.found) >= self.budget:
            raise Spent
        return self.found[setting]

    def delivered(self, evaluations: int) -> float:
        """True speed of what measured best among the first settings, over the fastest that there is; 0 to 1."""
        measured = [(speed, one) for one, speed in list(self.found.items())[:evaluations] if speed is not None]
        true = self.landscape.true_value(max(measured)[1]) if measured else None
        return 0.0 if true is None else math.exp(true - self.landscape.optimum)
