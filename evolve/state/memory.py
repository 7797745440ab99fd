"""How a run learns: attempts, in their order, become credit, outcomes of ideas, counts of failures and lessons.

The same attempts in the same order teach the same, so that a resumed or replayed run knows what the undisturbed one
knew. It uses no clock, and what it keeps is bounded.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from types import MappingProxyType
from typing import TypeVar

from kbevolve.archive.records import Birth, BirthState, Evaluation, Idea, Operator, Verdict
from kbevolve.evolve.state.knowledge import Gain, IdeaOutcome, Spending
from kbevolve.evolve.state.lessons import EVERY, REMEMBERED, Evidence, Lesson, Pair, distil, still_valid
from kbevolve.evolve.state.normalise import bottleneck_class, folded, signature
from kbevolve.islands.credit.claims import Calibration
from kbevolve.islands.credit.credit import Credit
from kbevolve.islands.credit.posterior import Belief
from kbevolve.islands.credit.techniques import Experience
from kbevolve.islands.stagnation import ACCEPTED

#: Ideas and signatures that are remembered; of more, the oldest are forgotten.
IDEAS, SIGNATURES = 512, 256
#: Exhausted ideas that a prompt shows, the newest.
SHOWN_EXHAUSTED = 20
#: What is believed of the operators before the first child: worth five or six children, on rewrites the least.
PRIORS: Mapping[str, Belief] = MappingProxyType(
    {
        str(Operator.MUTATE): Belief(valid=4, invalid=2, gain=0.05, weight=2),
        str(Operator.REWRITE): Belief(valid=3, invalid=3, gain=-0.2, weight=2, scale=0.08),
        str(Operator.CROSS): Belief(valid=3, invalid=2, gain=-0.02, weight=2),
        str(Operator.TUNE): Belief(valid=5, invalid=1, gain=-0.02, weight=2, scale=0.002),
    }
)

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What a run has learnt by some time. Immutable: every attempt makes a new one, and a brief may keep an old one."""

    #: What each operator has brought, and each model by the name that the settings have for it; what models have cost.
    operators: Credit = field(default_factory=lambda: Credit(priors=PRIORS))
    models: Credit = field(default_factory=Credit)
    spending: Mapping[str, Spending] = field(default_factory=dict)
    #: What each technique has brought against each bottleneck.
    experience: Experience = field(default_factory=Experience)
    #: By author (`Idea.proposed_by`): what the claims of its ideas were worth.
    claims: Mapping[str, Calibration] = field(default_factory=dict)
    #: Title (folded) -> what came of the idea; the newest last.
    outcomes: Mapping[str, IdeaOutcome] = field(default_factory=dict)
    #: Signature -> how many kernels failed so.
    failures: Mapping[str, int] = field(default_factory=dict)
    #: The newest children of each technique against each bottleneck, and the lessons that were last drawn from them.
    evidence: Mapping[Pair, tuple[Evidence, ...]] = field(default_factory=dict)
    drawn: tuple[Lesson, ...] = ()
    #: Attempts, starting kernels apart; and how the child was made whose repairs come next.
    births: int = 0
    operator: Operator = Operator.MUTATE
    #: Kernels judged; how many they were at the last improvement, and the speedup that the next improvement is over.
    judged: int = 0
    marked: int = 0
    mark: float = 0.0

    @property
    def stalled(self) -> int:
        """Kernels judged since the last improvement that counts."""
        return self.judged - self.marked

    @property
    def lessons(self) -> tuple[Lesson, ...]:
        """The lessons that no newer child contradicts."""
        return still_valid(self.drawn, self.evidence)

    def outcome(self, title: str) -> IdeaOutcome | None:
        """What came of the idea of this title; None when it was not tried."""
        return self.outcomes.get(folded(title))

    def calibration(self, author: str) -> Calibration:
        """What the claims of an author's ideas are worth."""
        return self.claims.get(author, Calibration())

    def exhausted(self) -> Iterator[IdeaOutcome]:
        """Ideas that should not be tried again, the newest first, at most `SHOWN_EXHAUSTED`."""
        return islice((one for one in reversed(tuple(self.outcomes.values())) if one.exhausted), SHOWN_EXHAUSTED)

    def after(
        self, birth: Birth, idea: Idea | None, evaluation: Evaluation | None, parent: Evaluation | None
    ) -> "Memory":
        """After an attempt.

        Args:
            birth: not a starting kernel's; the repairs of a child follow it.
            idea: what it carries out, None when it follows none.
            evaluation: what the judge found, None when it has no kernel.
            parent: the evaluation of its first correct parent.
        """
        fresh = evaluation if birth.state is BirthState.CREATED else None
        gain = Gain.of(fresh, parent)
        log = gain.log if gain else None
        operator = birth.operator if birth.slot == 0 else self.operator
        operators = self.operators.with_child(str(operator), log)
        learnt = replace(self, births=self.births + 1, operator=operator, operators=operators)
        if (alias := birth.model_alias) != "":
            spent = self.spending.get(alias, Spending()).after(birth)
            models = self.models.with_child(alias, log)
            learnt = replace(learnt, models=models, spending={**self.spending, alias: spent})
        failure = ""
        if fresh is not None and fresh.verdict is not Verdict.CORRECT:
            failure = signature(fresh)
            count = self.failures.get(failure, 0) + 1
            learnt = replace(learnt, failures=_newest(self.failures, failure, count, SIGNATURES))
        if idea is not None:
            pair = (idea.technique, bottleneck_class(idea.bottleneck))
            evidence = Evidence(number=learnt.births, kernel=birth.kernel or "", gain=log, signature=failure)
            outcome = (self.outcome(idea.title) or IdeaOutcome(idea=idea)).after(birth, evaluation, gain)
            if log is not None and idea.expected_gain is not None:
                author = idea.proposed_by
                calibration = self.calibration(author).after(math.log(idea.expected_gain), log)
                learnt = replace(learnt, claims={**self.claims, author: calibration})
            learnt = replace(
                learnt,
                experience=self.experience.with_child(*pair, birth.island, log),
                evidence={**self.evidence, pair: (*self.evidence.get(pair, ()), evidence)[-REMEMBERED:]},
                outcomes=_newest(self.outcomes, folded(idea.title), outcome, IDEAS),
            )
        return replace(learnt, drawn=distil(learnt.evidence)) if learnt.births % EVERY == 0 else learnt

    def improved(self, speedup: float) -> "Memory":
        """After the run has reached a speedup; a new mark when it is better."""
        if speedup >= self.mark * ACCEPTED and speedup > 0:
            return replace(self, mark=speedup, marked=self.judged)
        return self


def _newest(known: Mapping[str, Value], key: str, value: Value, limit: int) -> dict[str, Value]:
    """With an entry as the last one, and without the first one beyond the limit."""
    kept = {name: one for name, one in known.items() if name != key} | {key: value}
    if len(kept) > limit:
        del kept[next(iter(kept))]
    return kept
