"""Our search as a law: niches and parents by the modules that breed kernels, operators and techniques by credit.

A run does not use the credit yet (`evolve.operators` draws by fixed shares). The constants below were chosen on the
ladders of `trials.ladders`.
"""

import math
from collections import Counter
from dataclasses import replace

from kbevolve.archive.records import Backend, Evaluation, Kernel, Operator, Verdict
from kbevolve.evolve.trials.landscape import Idea, Program
from kbevolve.evolve.trials.law import Claim, Found, Setting
from kbevolve.evolve.trials.operator import Task
from kbevolve.islands.belief import Belief
from kbevolve.islands.credit import Credit
from kbevolve.islands.island import Island, Member
from kbevolve.islands.selection import RankSelection, inspirations

#: Shares of the operators among draws that follow no credit, at first and after `SETTLED` evaluations. Techniques come
#: first: a parameter of a technique that is replaced next was tuned for nothing, and there is little to cross yet.
EARLY = {Operator.MUTATE: 0.65, Operator.REWRITE: 0.28, Operator.CROSS: 0.04, Operator.TUNE: 0.03}
LATE = {Operator.MUTATE: 0.42, Operator.REWRITE: 0.12, Operator.CROSS: 0.16, Operator.TUNE: 0.30}
SETTLED = 100
#: What each operator gets whatever is believed of it.
FLOOR = 0.05
#: What is believed of the operators before the first child: worth five or six children, on rewrites the least.
PRIORS = {
    str(Operator.MUTATE): Belief(valid=4, invalid=2, gain=0.05, weight=2),
    str(Operator.REWRITE): Belief(valid=3, invalid=3, gain=-0.2, weight=2, scale=0.08),
    str(Operator.CROSS): Belief(valid=3, invalid=2, gain=-0.02, weight=2),
    str(Operator.TUNE): Belief(valid=5, invalid=1, gain=-0.02, weight=2, scale=0.002),
}
#: Parents are drawn by rank, steeply: within some hundred evaluations who is far from the best does not get there.
PRESSURE = 5.0
#: Part of an author's promise that is added to what is believed of a technique.
TRUST = 0.5
#: Of the budget: what is kept to measure the best again, and how many of them at most.
VERIFIED_SHARE = 0.06
FINALISTS = 5
#: Failures that are shown to the next children.
WARNINGS = 5


class OurLaw:
    """One island with niches; rank law with child discount; operators and techniques by credit; a fresh last look."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._island = Island(index=0)
        self._found: dict[str, Found] = {}
        self._children: Counter[str] = Counter()
        self._operators = Credit(priors=PRIORS)
        self._techniques = Credit()
        self._warnings: list[str] = []
        self._number = 0
        self._parent: Found | None = None
        self._operator = Operator.MUTATE
        self._family = ""

    def task(self, spent: int) -> Task:
        """A child of a ranked parent, made in a way that pays."""
        self._number += 1
        home = self._island.mapped(lambda member: replace(member, children=self._children[member.kernel.id]))
        selection = RankSelection(pressure=PRESSURE, elite_share=0.0)
        parents = selection(home, self._setting.rng("parents", self._number), lambda member: True)
        self._operator = self._choose_operator(spent, len(parents))
        parent = self._parent = self._found[parents[0].kernel.id]
        self._children[parents[0].kernel.id] += 1
        shown = inspirations(home, parents[:1], self._setting.rng("inspirations", self._number))
        writes = self._operator in (Operator.MUTATE, Operator.REWRITE)
        idea = self._idea(parent.program) if writes else None
        self._family = idea.family if idea else ""
        mates = parents if self._operator is Operator.CROSS else parents[:1]
        return Task(
            operator=self._operator,
            parents=tuple(self._found[one.kernel.id].program for one in mates),
            idea=idea,
            inspirations=tuple(self._found[one.kernel.id].program for one in shown),
            warnings=frozenset(self._warnings[-WARNINGS:]),
        )

    def note(self, found: Found) -> None:
        """Credit for how it was made; a place for a valid one."""
        if found.task is not None and self._parent is not None:
            gain = None if found.score is None or found.duplicate else found.score - (self._parent.score or 0.0)
            self._operators = self._operators.with_child(str(self._operator), gain)
            if self._family:
                self._techniques = self._techniques.with_child(self._family, gain)
        if found.failure is not None:
            self._warnings.append(found.failure.signature)
        if found.score is None or found.duplicate:
            return
        member = _member(found, self._setting.landscape.niche(found.program))
        self._found.setdefault(member.kernel.id, found)
        self._island = self._island.with_member(member)

    def reserve(self) -> int:
        """The last look at the finalists."""
        return min(FINALISTS, int(VERIFIED_SHARE * self._setting.budget))

    def claim(self) -> Claim:
        """The finalist that was best when measured afresh; only that number is published."""
        ranked = [self._found[member.kernel.id] for member in self._island.crowd]
        fresh = []
        for one in ranked[: self.reserve()]:
            found = self._setting.again(one.program)
            if found is not None and found.score is not None:
                fresh.append((one, found))
        if not fresh:
            best = max(ranked, key=lambda one: one.low)
            return Claim(program=best.program, score=best.low)
        # Both looks decide who is best, the fresh one alone is told: it was not chosen for its luck.
        best, again = max(fresh, key=lambda pair: (pair[0].score or 0.0) + (pair[1].score or 0.0))
        return Claim(program=best.program, score=again.score or 0.0)

    def _choose_operator(self, spent: int, parents: int) -> Operator:
        settled = min(1.0, spent / SETTLED)
        shares = {
            str(one): (1 - settled) * EARLY[one] + settled * LATE[one]
            for one in EARLY
            if one is not Operator.CROSS or parents > 1
        }
        return Operator(self._operators.choose(shares, self._setting.rng("operator", self._number), floor=FLOOR))

    def _idea(self, program: Program) -> Idea:
        """Of several ideas the one that its technique's credit and its author's promise speak for."""
        rng = self._setting.rng("idea", self._number)
        ideas = self._setting.author.ideas(self._setting.landscape, program, rng)
        worth = [self._techniques.belief(idea.family).draw(rng) + TRUST * idea.claim for idea in ideas]
        return max(zip(worth, ideas, strict=True), key=lambda pair: pair[0])[1]


def _member(found: Found, niche: str) -> Member:
    """A program as the islands see a kernel."""
    name = repr(found.program)
    score = found.score or 0.0
    evaluation = Evaluation(
        kernel=name,
        problem="",
        device="",
        precision="fp32",
        verdict=Verdict.CORRECT,
        speedup=math.exp(score),
        speedup_low=math.exp(found.low),
        speedup_high=math.exp(score + found.margin),
    )
    return Member(kernel=Kernel(id=name, backend=Backend.TRITON, source=name), evaluation=evaluation, niche=niche)
