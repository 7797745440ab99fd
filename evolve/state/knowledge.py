"""What a run has learnt by some time: a snapshot that a brief may keep while the run goes on."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from types import MappingProxyType
from typing import TypeVar

from kbevolve.archive.formatting import three_digits
from kbevolve.archive.records import Birth, BirthState, Evaluation, Idea, Verdict
from kbevolve.evolve.state.lessons import Lesson
from kbevolve.evolve.state.normalise import first_line, folded, signature
from kbevolve.evolve.state.priors import PRIORS
from kbevolve.islands.credit.credit import Credit
from kbevolve.islands.credit.techniques import Experience

#: Exhausted ideas that a prompt shows, the newest.
SHOWN_EXHAUSTED = 20
#: Failures of different signatures after which an idea is exhausted, and children it may have at most: one failed
#: implementation is not a failed idea.
FAILURES, CHILDREN = 2, 2

#: Usual spread of gains (log), as `islands.credit.posterior` has it; and standard errors in a 95 % interval.
USUAL, TWO_SIDED = 0.2, 2 * 1.96

Key = TypeVar("Key")
Value = TypeVar("Value")


def nothing() -> Mapping[Key, Value]:
    """A mapping that holds nothing and cannot change."""
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """A child's speedup over its parent, a factor, with the interval that both of their intervals allow."""

    factor: float
    low: float
    high: float

    @classmethod
    def of(cls, child: Evaluation | None, parent: Evaluation | None) -> "Gain | None":
        """The gain of a correct child over a correct parent; None when either is not."""
        if not (_timed(child) and _timed(parent)):
            return None
        assert child is not None, "timed"
        assert parent is not None, "timed"
        factor = (child.timing.speedup or 0.0) / (parent.timing.speedup or 1.0)
        low = (child.timing.speedup_low or child.timing.speedup or 0.0) / (
            parent.timing.speedup_high or parent.timing.speedup or 1.0
        )
        high = (child.timing.speedup_high or child.timing.speedup or 0.0) / (
            parent.timing.speedup_low or parent.timing.speedup or 1.0
        )
        return cls(factor=factor, low=low, high=high)

    @property
    def log(self) -> float:
        """Its logarithm as far as it can be believed: drawn towards 0 by its own noise.

        What a normal of spread `USUAL` makes of a measurement with this interval. On a quiet device that changes
        nothing; where an interval spans factors, a lucky child would else be the best news of its technique for long.
        """
        noise = (math.log(self.high) - math.log(self.low)) / TWO_SIDED if self.low > 0 else math.inf
        return math.log(self.factor) * USUAL**2 / (USUAL**2 + noise**2)


@dataclass(frozen=True, slots=True, kw_only=True)
class IdeaOutcome:
    """What came of an idea so far."""

    idea: Idea
    #: Children that carried it out, and births, repairs among them; births that gave a correct kernel.
    children: int = 0
    births: int = 0
    worked: int = 0
    #: First lines of its failures, each signature once, the first first.
    failures: Mapping[str, str] = field(default_factory=lambda: nothing())
    #: The best gain; None while no child of it worked.
    gain: Gain | None = None

    def after(self, birth: Birth, evaluation: Evaluation | None, gain: Gain | None) -> "IdeaOutcome":
        """After a birth that carried it out; `gain` is over its parent.

        A duplicate is a child like any other, but what was found about its kernel was found before.
        """
        fresh = evaluation if birth.state is BirthState.CREATED else None
        correct = fresh is not None and fresh.verdict is Verdict.CORRECT
        failures = self.failures
        if fresh is not None and not correct:
            failures = {**failures, signature(fresh): first_line(fresh)}
        better = correct and gain is not None and (self.gain is None or gain.factor > self.gain.factor)
        return replace(
            self,
            children=self.children + (birth.slot == 0),
            births=self.births + 1,
            worked=self.worked + correct,
            failures=failures,
            gain=gain if better else self.gain,
        )

    @property
    def exhausted(self) -> str:
        """Why it should not be tried again; "" when nothing speaks against it."""
        if self.worked:
            lost = self.gain is not None and self.gain.high < 1
            return f"slower: {gain_words(self.gain)}" if lost and self.gain else ""
        if len(self.failures) >= FAILURES:
            return f"failed {self.births}x: {'; '.join(list(self.failures.values())[:FAILURES])}"
        return ""

    @property
    def open(self) -> bool:
        """Whether it may be carried out once more: it failed in one way only, so that the code may be to blame."""
        return not self.worked and not self.exhausted and self.children < CHILDREN


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What a model has cost."""

    births: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What a run knew when a generation was begun. Everything follows from attempts and verdicts, in their order."""

    #: What each operator has brought, and each model by the name that the settings have for it; what models have cost.
    operators: Credit = field(default_factory=lambda: Credit(priors=PRIORS))
    models: Credit = field(default_factory=Credit)
    spending: Mapping[str, Spending] = field(default_factory=lambda: nothing())
    #: What each technique has brought against each bottleneck.
    experience: Experience = field(default_factory=Experience)
    #: Title (folded) -> what came of the idea, in the order of their first children.
    outcomes: Mapping[str, IdeaOutcome] = field(default_factory=lambda: nothing())
    #: Signature -> how many kernels failed so.
    failures: Mapping[str, int] = field(default_factory=lambda: nothing())
    lessons: tuple[Lesson, ...] = ()
    #: Kernels judged, and of these those since the last improvement that counts.
    judged: int = 0
    stalled: int = 0

    def outcome(self, title: str) -> IdeaOutcome | None:
        """What came of the idea of this title; None when it was not tried."""
        return self.outcomes.get(folded(title))

    def exhausted(self) -> Iterator[IdeaOutcome]:
        """Ideas that should not be tried again, the newest first, at most `SHOWN_EXHAUSTED`."""
        return islice((one for one in reversed(tuple(self.outcomes.values())) if one.exhausted), SHOWN_EXHAUSTED)


def gain_words(gain: Gain) -> str:
    """``0.850 times its parent's speed, 0.833 to 0.867``."""
    factor, low, high = map(three_digits, (gain.factor, gain.low, gain.high))
    return f"{factor} times its parent's speed, {low} to {high}"


def _timed(evaluation: Evaluation | None) -> bool:
    return evaluation is not None and evaluation.verdict is Verdict.CORRECT and bool(evaluation.timing.speedup)
