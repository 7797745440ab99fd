"""What a run knows of one child, of one idea, and of one model: gains, outcomes, costs."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kbevolve.archive.formatting import three_digits
from kbevolve.archive.records import Birth, BirthState, Evaluation, Idea, Verdict
from kbevolve.evolve.state.normalise import first_line, signature

#: Failures of different signatures after which an idea is exhausted, and children it may have at most: one failed
#: implementation is not a failed idea.
FAILURES, CHILDREN = 2, 2

#: Usual spread of gains (log), as `islands.credit.posterior` has it; and standard errors in a 95 % interval.
USUAL, TWO_SIDED = 0.2, 2 * 1.96


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """A child's speedup over its parent, a factor, with the interval that both of their intervals allow."""

    factor: float
    low: float
    high: float

    @classmethod
    def of(cls, child: Evaluation | None, parent: Evaluation | None) -> "Gain | None":
        """The gain of a correct child over a correct parent; None when either is not."""
        ours, theirs = _interval(child), _interval(parent)
        if ours is None or theirs is None:
            return None
        return cls(factor=ours[0] / theirs[0], low=ours[1] / theirs[2], high=ours[2] / theirs[1])

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
    failures: Mapping[str, str] = field(default_factory=dict)
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
            if self.gain is None or self.gain.high >= 1:
                return ""
            factor, low, high = map(three_digits, (self.gain.factor, self.gain.low, self.gain.high))
            return f"slower: {factor} times its parent's speed, {low} to {high}"
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

    def after(self, birth: Birth) -> "Spending":
        """After a birth that asked it."""
        return Spending(
            births=self.births + 1,
            prompt_tokens=self.prompt_tokens + birth.prompt_tokens,
            completion_tokens=self.completion_tokens + birth.completion_tokens,
        )


def _interval(evaluation: Evaluation | None) -> tuple[float, float, float] | None:
    """The speedup with the ends of its interval; None unless it is correct and was timed."""
    if evaluation is None or evaluation.verdict is not Verdict.CORRECT or not evaluation.timing.speedup:
        return None
    timing, speedup = evaluation.timing, evaluation.timing.speedup
    return speedup, timing.speedup_low or speedup, timing.speedup_high or speedup
