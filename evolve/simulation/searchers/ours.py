"""Our search as a law: niches, parents and operators by the modules that breed kernels, techniques by their credit.

A run keeps the credit of techniques on more levels (`islands.credit.techniques`): a trial has one island and no other
problems. The constants here and in `evolve.strategies.operators` were chosen on the ladders of `trials.ladders`.
"""

import math
from collections import Counter
from dataclasses import replace

from kbevolve.archive.records import Backend, Evaluation, Kernel, Operator, Verdict
from kbevolve.configs.settings import SearchSettings
from kbevolve.evolve.simulation.author import Task
from kbevolve.evolve.simulation.landscape import Idea, Program
from kbevolve.evolve.simulation.searcher import Claim, Found, Setting
from kbevolve.evolve.simulation.tuning import tuned
from kbevolve.evolve.state.priors import PRIORS
from kbevolve.evolve.strategies.evolve import INSPIRED_FROM, LAW, law_at
from kbevolve.evolve.strategies.operators import STUCK, choose_operator, operator_shares
from kbevolve.islands.credit.credit import Credit
from kbevolve.islands.island import Island, Member
from kbevolve.islands.selection import inspirations
from kbevolve.islands.stagnation import ACCEPTED, stage_of, window

#: As a run has them that nobody set otherwise.
SETTINGS = SearchSettings()
#: Part of an author's promise that is added to what is believed of a technique.
TRUST = 0.5
#: How many of the best are measured again in the end, and the budget from which there is one to do it.
FINALISTS = 5
VERIFIED_FROM = 100
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
        # All that were tried, with None for failures; the score that the next improvement is over, and the evaluations
        # since.
        self._scores: dict[Program, float | None] = {}
        self._mark = -math.inf
        self._stalled = 0
        self._parent: Found | None = None
        self._operator = Operator.MUTATE
        self._family = ""

    def task(self, spent: int) -> Task:
        """A child of a ranked parent, made in a way that pays."""
        self._number += 1
        home = self._island.mapped(lambda member: replace(member, children=self._children[member.kernel.id]))
        stage = stage_of(self._stalled, window(self._setting.budget, SETTINGS.patience))
        law = law_at(stage, LAW, stalled=self._stalled)
        parents = law(home, self._setting.rng("parents", self._number), lambda member: True)
        self._operator = self._choose_operator(len(parents))
        parent = self._parent = self._found[parents[0].kernel.id]
        self._children[parents[0].kernel.id] += 1
        rng = self._setting.rng("inspirations", self._number)
        shown = inspirations(home, parents[:1], rng) if spent >= INSPIRED_FROM else ()
        writes = self._operator in (Operator.MUTATE, Operator.REWRITE)
        idea = self._idea(parent.program) if writes else None
        self._family = idea.family if idea else ""
        mates = parents if self._operator is Operator.CROSS else parents[:1]
        return Task(
            operator=self._operator,
            parents=tuple(self._found[one.kernel.id].program for one in mates),
            idea=idea,
            child=self._tuned(parent.program) if self._operator is Operator.TUNE else None,
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
        if not found.duplicate:
            self._scores[found.program] = found.score
            self._stalled += 1
        if found.low > self._mark + math.log(ACCEPTED):
            self._mark, self._stalled = found.low, 0
        if found.failure is not None:
            self._warnings.append(found.failure.signature)
        if found.score is None or found.duplicate:
            return
        member = _member(found, self._setting.landscape.niche(found.program))
        self._found.setdefault(member.kernel.id, found)
        self._island = self._island.with_member(member)

    def reserve(self) -> int:
        """The last look at the finalists."""
        return FINALISTS if self._setting.budget >= VERIFIED_FROM else 0

    def claim(self) -> Claim:
        """The finalist that was best when measured afresh; only that number is published."""
        ranked = [self._found[member.kernel.id] for member in self._island.crowd]
        fresh = []
        for one in ranked[: self.reserve()]:
            found = self._setting.again(one.program)
            if found is not None and found.score is not None:
                fresh.append((one, found))
        if not fresh:
            return Claim(program=ranked[0].program, score=ranked[0].low)
        # Both looks decide who is best, the fresh one alone is told: it was not chosen for its luck.
        best, again = max(fresh, key=lambda pair: (pair[0].score or 0.0) + (pair[1].score or 0.0))
        return Claim(program=best.program, score=again.score or 0.0)

    def _choose_operator(self, parents: int) -> Operator:
        available = [one for one in (*STUCK, Operator.TUNE) if one is not Operator.CROSS or parents > 1]
        shares = operator_shares(available, stalled=self._stalled, tune_share=SETTINGS.tune_share)
        return choose_operator(
            shares,
            self._operators,
            self._setting.rng("operator", self._number),
            by_credit=SETTINGS.operator_choice == "credit",
        )

    def _tuned(self, program: Program) -> Program | None:
        return tuned(self._setting.landscape, program, self._scores, self._setting.rng("tune", self._number))

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
