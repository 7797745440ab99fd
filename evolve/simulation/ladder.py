"""A program ladder: techniques with rungs and parameters, whose worth depends on what a program has already.

The log speedup of a program is a sum: what it is without any technique, the gain of each technique's rung, a bonus or a
cost for pairs of rungs, and a loss for each parameter of a technique in use that is not at its best. A rung may need a
rung of another technique first; without it, it costs more than it brings. Programs in certain regions fail. All of this
is drawn beforehand (`simulation.ladders`); the search sees only what a judge would report.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random

from kbevolve.evolve.simulation.landscape import Gene, Program, ProgramFailure, ProgramOutcome, niche_key

#: What a rung costs (log) beside the gain it does not bring while the rung that it needs is missing.
UNMET = 0.12
#: Rounds of one evaluation.
ROUNDS = 5
#: Noise of a round, and of the process that all rounds of an evaluation share, as standard deviations of the log time.
#: A program has its own, log-uniform between these (0.2 to 2.3 %, as measured); a process has half of it.
LEAST_NOISE = 0.002
MOST_NOISE = 0.023
PROCESS_NOISE = 0.5
#: Techniques whose rungs make the niche, as islands have four axes, and the levels of each.
AXES = 4
LEVELS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A rung that pays only beside another technique."""

    #: The first rung that has this need.
    rung: int
    #: Position of the other technique, and the rung that it must have reached.
    other: int
    reached: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A value that matters while its technique is in use."""

    #: Position of the technique.
    technique: int
    choices: int
    #: The best choice for each rung of the technique.
    best: tuple[int, ...]
    #: Loss (log) of the choice that is furthest away.
    weight: float

    def loss(self, rung: int, choice: int) -> float:
        """Log speedup lost by a choice; nothing while the technique is not in use."""
        if rung == 0:
            return 0.0
        return self.weight * ((choice - self.best[rung]) / (self.choices - 1)) ** 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Technique:
    """One ladder."""

    name: str
    #: Cumulative log gain of each rung; 0 for the first, where the technique is not used.
    gains: tuple[float, ...]
    need: Need | None
    #: The log speedup that is commonly said of it.
    fame: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FailingRegion:
    """A region in which programs fail: rungs reached together, and at times a bad range of one parameter."""

    failure: ProgramFailure
    #: Technique positions and the least rungs with which it begins; the least rung of one of them is above 0.
    rungs: Mapping[int, int]
    #: Position of a parameter among the parameters, first and last choice that fail; None when all do.
    #: No more than one, so that the optimum can be computed parameter by parameter.
    bad: tuple[int, int, int] | None = None

    def begins(self, rungs: Sequence[int]) -> bool:
        """Whether the rungs alone lead into it."""
        return all(rungs[technique] >= least for technique, least in self.rungs.items())

    def holds(self, rungs: Sequence[int], choices: Sequence[int]) -> bool:
        """Whether a program is in the region."""
        if not self.begins(rungs):
            return False
        return self.bad is None or self.bad[1] <= choices[self.bad[0]] <= self.bad[2]


@dataclass(frozen=True, kw_only=True, eq=False)
class Ladder:
    """Implements `Landscape` on drawn techniques. Genes: the rung of every technique, then every parameter."""

    name: str
    #: Log speedup of the program without any technique over the reference.
    base: float
    techniques: Sequence[Technique]
    #: Each belongs to one of the techniques.
    parameters: Sequence[Parameter]
    #: For two techniques, the log speedup by the rungs of the first and of the second.
    pairs: Mapping[tuple[int, int], Sequence[Sequence[float]]]
    #: Where programs fail.
    faults: Sequence[FailingRegion]

    @cached_property
    def genes(self) -> tuple[Gene, ...]:
        """See `Landscape`."""
        rungs = [Gene(name=one.name, family=one.name, choices=len(one.gains), rung=True) for one in self.techniques]
        families = [self.techniques[parameter.technique].name for parameter in self.parameters]
        values = [
            Gene(name=f"{family}-{number}", family=family, choices=parameter.choices)
            for number, (family, parameter) in enumerate(zip(families, self.parameters, strict=True), start=1)
        ]
        return (*rungs, *values)

    @cached_property
    def optimum(self) -> float:
        """See `Landscape`. Exact: all combinations of rungs, the best parameters that do not fail for each."""
        best = -math.inf
        for rungs in itertools.product(*(range(len(one.gains)) for one in self.techniques)):
            bound = self._structure(rungs)
            if bound > best:
                best = max(best, bound - self._least_loss(rungs))
        return best

    def start(self) -> tuple[Program, ...]:
        """The program without any technique, and the fastest that has one rung of one."""
        naive = (0,) * len(self.genes)
        first = [(*naive[:at], 1, *naive[at + 1 :]) for at in range(len(self.techniques))]
        valid = [program for program in first if self.failure(program) is None]
        return (naive, *sorted(valid, key=self._value, reverse=True)[:1])

    def exists(self, program: Program) -> bool:
        """See `Landscape`."""
        return len(program) == len(self.genes) and all(
            0 <= choice < gene.choices for choice, gene in zip(program, self.genes, strict=True)
        )

    def failure(self, program: Program) -> ProgramFailure | None:
        """See `Landscape`."""
        rungs, choices = self._halves(program)
        return next((fault.failure for fault in self.faults if fault.holds(rungs, choices)), None)

    def true_value(self, program: Program) -> float | None:
        """See `Landscape`."""
        return None if self.failure(program) else self._value(program)

    def measure(self, program: Program, rng: Random) -> ProgramOutcome:
        """See `Landscape`. Rounds differ, and so do processes, which all rounds of one evaluation share."""
        failure = self.failure(program)
        if failure is not None:
            return failure
        own = Random(f"{self.name}/{program}")
        noise = math.exp(own.uniform(math.log(LEAST_NOISE), math.log(MOST_NOISE)))
        centre = rng.gauss(-self._value(program), PROCESS_NOISE * noise)
        return tuple(rng.gauss(centre, noise) for _ in range(ROUNDS))

    def niche(self, program: Program) -> str:
        """See `Landscape`: the rungs of the first techniques."""
        return niche_key([min(rung, LEVELS - 1) for rung in program[: min(AXES, len(self.techniques))]])

    def fame(self, family: str) -> float:
        """See `Landscape`."""
        return next(one.fame for one in self.techniques if one.name == family)

    def _halves(self, program: Program) -> tuple[Program, Program]:
        return program[: len(self.techniques)], program[len(self.techniques) :]

    def _value(self, program: Program) -> float:
        rungs, choices = self._halves(program)
        lost = (
            parameter.loss(rungs[parameter.technique], choice)
            for parameter, choice in zip(self.parameters, choices, strict=True)
        )
        return self._structure(rungs) - sum(lost)

    def _structure(self, rungs: Program) -> float:
        """Log speedup of a combination of rungs with all parameters at their best."""
        value = self.base
        for technique, rung in zip(self.techniques, rungs, strict=True):
            need = technique.need
            if need is not None and rung >= need.rung and rungs[need.other] < need.reached:
                value += technique.gains[need.rung - 1] - UNMET
            else:
                value += technique.gains[rung]
        for (first, second), table in self.pairs.items():
            value += table[rungs[first]][rungs[second]]
        return value

    def _least_loss(self, rungs: Program) -> float:
        """Loss of the best parameters that do not fail with these rungs; infinite when all do."""
        begun = [fault for fault in self.faults if fault.begins(rungs)]
        if any(fault.bad is None for fault in begun):
            return math.inf
        barred = [fault.bad for fault in begun if fault.bad is not None]
        total = 0.0
        for position, parameter in enumerate(self.parameters):
            rung = rungs[parameter.technique]
            total += min(
                (
                    parameter.loss(rung, choice)
                    for choice in range(parameter.choices)
                    if not any(at == position and low <= choice <= high for at, low, high in barred)
                ),
                default=math.inf,
            )
        return total
