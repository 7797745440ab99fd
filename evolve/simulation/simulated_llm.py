"""A simulated language model: it carries out ideas, makes mistakes, repeats itself, repairs, and learns from others.

It simulates the proposer, not any landscape. There are two authors: one whose proposals are invalid to 30 to 50 % and
duplicates to 15 to 35 %, with those of the landscape, and whose claims say little; and one as it was recorded, whose
children mostly work and gain what their ideas claim. Every share can be set. It writes a `Draft`: the program that was
meant, and the slip (the mistake of the writing) if there is one. `judge` then says what an evaluation of it finds.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from types import MappingProxyType

from kbevolve.archive.records import Idea, Operator, Verdict
from kbevolve.evolve.simulation.landscape import (
    Landscape,
    Program,
    ProgramFailure,
    ProgramOutcome,
    families,
)
from kbevolve.evolve.simulation.moves import along, crossed, potential, retuned, rewritten, taken_over, ways_out

#: How many genes a proposal changes: mostly one.
EDITS = (1, 1, 1, 2, 2, 3)
#: Parts of a claim: what is commonly said of the technique, what it can bring here, and the error of the guess (log).
HEARSAY = 0.5
INSIGHT = 0.5
CLAIM_ERROR = 0.1
#: A recorded model's claim over the gain of its children (log of the ratio of logs): median and standard deviation;
#: and what it claims for an idea that brings nothing (`tests/islands/credit/claims.csv`).
BOAST, BOAST_ERROR, HOPE = 0.25, 0.4, 0.05
#: What slips of each class say; few, so that signatures recur.
SLIPS: Mapping[Verdict, tuple[str, ...]] = {
    Verdict.REFUSED: ("no code in the answer",),
    Verdict.BUILD_FAILED: ("undeclared identifier", "arguments do not match", "unexpected token"),
    Verdict.CRASHED: ("illegal memory access", "shape mismatch"),
    Verdict.TIMED_OUT: ("a loop does not end",),
    Verdict.WRONG: ("all elements differ", "the last tile differs", "not a number"),
}
#: Share of the answers that slip, by class: 35 % together; what a landscape refuses is on top.
SHARES: Mapping[Verdict, float] = MappingProxyType(
    {
        Verdict.REFUSED: 0.03,
        Verdict.BUILD_FAILED: 0.15,
        Verdict.CRASHED: 0.06,
        Verdict.TIMED_OUT: 0.01,
        Verdict.WRONG: 0.10,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What the model is asked for, and what it is shown."""

    #: MUTATE, REWRITE, CROSS or TUNE.
    operator: Operator
    #: One valid program, two for CROSS, the main one first.
    parents: tuple[Program, ...]
    #: What MUTATE and REWRITE carry out; None lets the model take any technique.
    idea: Idea | None = None
    #: The child itself, for TUNE by a searcher that chooses values; None leaves them to chance.
    child: Program | None = None
    #: Programs shown to learn from.
    inspirations: tuple[Program, ...] = ()
    #: Signatures of failures shown as warnings.
    warnings: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """One answer. Equal drafts are equal texts: a search that finds one again need not have it judged."""

    #: What was meant.
    program: Program
    #: The failure that the writing brought; None when the text is the program.
    slip: ProgramFailure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedLLM:
    """Writes children; all shares are between 0 and 1. Pure: landscape, task and `Random` decide the answer."""

    #: Share of answers that slip, by class of failure.
    slips: Mapping[Verdict, float] = field(default_factory=lambda: SHARES)
    #: Factor on all slips for a rewrite and a crossing, where more is written anew.
    rewriting: float = 1.3
    #: Share of answers that give back something that was shown.
    repeats: float = 0.12
    #: Share of repair turns that repair what can be repaired.
    repairs: float = 0.6
    #: How often an idea is carried out as an inspiration has it, when one is shown.
    learns: float = 0.35
    #: How often a shown failure is kept clear of.
    heeds: float = 0.6
    #: How often the better one of two ways is thought of first.
    skill: float = 0.25
    #: Programs that it thinks of before it names an idea, which then means the best of them; 0 for an idea that names
    #: no more than a technique.
    plans: int = 0

    def ideas(self, landscape: Landscape, program: Program, rng: Random, *, count: int = 4) -> tuple[Idea, ...]:
        """Different techniques for a program, the most promising by the model's own claims first.

        A claim predicts the true gain only roughly.
        """
        names = rng.sample(list(families(landscape.genes)), min(count, len(families(landscape.genes))))
        if self.plans:
            ideas = [self._planned(landscape, program, name, rng) for name in names]
            return tuple(sorted(ideas, key=lambda idea: -(idea.expected_gain or 0.0)))
        claims = {name: self._claim(landscape, program, name, rng) for name in names}
        return tuple(
            Idea(title=name, mechanism=name, technique=name, expected_gain=math.exp(claims[name]))
            for name in sorted(claims, key=lambda name: -claims[name])
        )

    def write(self, landscape: Landscape, task: Task, rng: Random) -> Draft:
        """One child."""
        if task.operator is Operator.TUNE:  # no model writes these, so nothing slips
            return Draft(program=task.child or retuned(landscape, task.parents[0], rng.choice(EDITS), rng))
        if rng.random() < self.repeats:
            return Draft(program=rng.choice((*task.parents, *task.inspirations)))
        program = self._meant(landscape, task, rng)
        if rng.random() < self.skill:
            program = _better(landscape, program, self._meant(landscape, task, rng))
        failure = landscape.failure(program)
        if failure is not None and failure.signature in task.warnings and rng.random() < self.heeds:
            program = self._meant(landscape, task, rng)
        return Draft(program=program, slip=self._slip(task.operator, rng))

    def repair(self, landscape: Landscape, draft: Draft, failure: ProgramFailure, rng: Random) -> Draft:
        """A failed draft after a repair turn; the same one when it did not help.

        A slip is corrected. A fault of the program itself is left by one changed gene.
        """
        if not failure.verdict.repairable or rng.random() >= self.repairs:
            return draft
        if draft.slip is not None:
            return Draft(program=draft.program)
        out = ways_out(landscape, draft.program, rng)
        return draft if out is None else Draft(program=out)

    def _meant(self, landscape: Landscape, task: Task, rng: Random) -> Program:
        parent = task.parents[0]
        if task.operator is Operator.CROSS and len(task.parents) > 1:
            return crossed(landscape, parent, task.parents[1], rng)
        family = task.idea.technique if task.idea else rng.choice(list(families(landscape.genes)))
        if task.operator is Operator.MUTATE and task.idea is not None and self.plans:
            return tuple(map(int, task.idea.mechanism.split()))
        if task.operator is Operator.REWRITE:
            return rewritten(landscape, parent, family, rng)
        if task.inspirations and rng.random() < self.learns:
            learnt = taken_over(landscape, parent, rng.choice(task.inspirations), family)
            if learnt != parent:
                return learnt
        return along(landscape, parent, family, rng.choice(EDITS), rng)

    def _slip(self, operator: Operator, rng: Random) -> ProgramFailure | None:
        factor = self.rewriting if operator in (Operator.REWRITE, Operator.CROSS) else 1.0
        drawn = rng.random()
        for verdict, share in self.slips.items():
            drawn -= factor * share
            if drawn < 0:
                return ProgramFailure(verdict=verdict, signature=f"{verdict.name}: {rng.choice(SLIPS[verdict])}")
        return None

    def _planned(self, landscape: Landscape, parent: Program, family: str, rng: Random) -> Idea:
        """An idea that means one program, with a claim as a recorded model makes them."""
        plans = [along(landscape, parent, family, rng.choice(EDITS), rng) for _ in range(self.plans)]
        plan = _better(landscape, *plans)
        value, now = landscape.true_value(plan), landscape.true_value(parent)
        gain = 0.0 if value is None or now is None else max(value - now, 0.0)
        claim = gain * math.exp(rng.gauss(BOAST, BOAST_ERROR)) + abs(rng.gauss(0, HOPE))
        return Idea(title=family, mechanism=" ".join(map(str, plan)), technique=family, expected_gain=math.exp(claim))

    def _claim(self, landscape: Landscape, program: Program, family: str, rng: Random) -> float:
        truth = potential(landscape, program, family)
        return max(0.0, HEARSAY * landscape.fame(family) + INSIGHT * truth + rng.gauss(0, CLAIM_ERROR))


#: As recorded on three problems: of 23 first attempts three were wrong, and all three were repaired.
RECORDED = SimulatedLLM(slips={Verdict.WRONG: 0.13}, rewriting=1.0, repeats=0.02, repairs=0.8, skill=0.0, plans=16)
#: By name.
AUTHORS: Mapping[str, SimulatedLLM] = MappingProxyType({"weak": SimulatedLLM(), "recorded": RECORDED})


def judge(landscape: Landscape, draft: Draft, rng: Random) -> ProgramOutcome:
    """What an evaluation of a draft says."""
    return draft.slip or landscape.measure(draft.program, rng)


def _better(landscape: Landscape, *programs: Program) -> Program:
    """The truly fastest; the first of them when all fail."""

    def worth(program: Program) -> float:
        value = landscape.true_value(program)
        return float("-inf") if value is None else value

    return max(programs, key=worth)
