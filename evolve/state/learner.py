"""How a run learns: attempts, in their order, become credit, outcomes of ideas, counts of failures and lessons.

The same attempts in the same order teach the same, so that a resumed or replayed run knows what the undisturbed one
knew. It uses no clock, and what it keeps is bounded.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import replace

from kbevolve.archive.records import Birth, BirthState, Evaluation, Idea, Operator, Verdict
from kbevolve.evolve.state.knowledge import Gain, IdeaOutcome, Memory, Spending
from kbevolve.evolve.state.lessons import EVERY, REMEMBERED, Evidence, Lesson, Pair, distil, still_valid
from kbevolve.evolve.state.normalise import bottleneck_class, folded, signature
from kbevolve.evolve.state.priors import PRIORS
from kbevolve.islands.credit.credit import Credit
from kbevolve.islands.credit.posterior import Tally
from kbevolve.islands.credit.techniques import Experience, Key
from kbevolve.islands.stagnation import ACCEPTED

#: Ideas and signatures that are remembered; of more, the oldest are forgotten.
IDEAS, SIGNATURES = 512, 256


class Learner:
    """What was learnt so far.

    Args:
        elsewhere: what other problems taught of techniques (`Experience.elsewhere`).
    """

    def __init__(self, elsewhere: Mapping[Key, Tally] | None = None) -> None:
        self._operators = Credit(priors=PRIORS)
        self._models = Credit()
        self._experience = Experience(elsewhere=elsewhere or {})
        self._spending: dict[str, Spending] = {}
        self._outcomes: dict[str, IdeaOutcome] = {}
        self._failures: dict[str, int] = {}
        self._evidence: dict[Pair, deque[Evidence]] = {}
        self._lessons: tuple[Lesson, ...] = ()
        self._births = 0
        #: How the child was made whose repairs come next.
        self._operator = Operator.MUTATE
        #: The speedup that the next improvement is over, and how many kernels were judged then.
        self._mark = 0.0
        self._marked = 0

    def observe(
        self, birth: Birth, idea: Idea | None, evaluation: Evaluation | None, parent: Evaluation | None
    ) -> None:
        """Learn from an attempt.

        Args:
            birth: not a starting kernel's; the repairs of a child follow it.
            idea: what it carries out, None when it follows none.
            evaluation: what the judge found, None when it has no kernel.
            parent: the evaluation of its first correct parent.
        """
        self._births += 1
        if birth.slot == 0:
            self._operator = birth.operator
        fresh = birth.state is BirthState.CREATED
        gain = Gain.of(evaluation, parent) if fresh else None
        log = gain.log if gain else None
        self._operators = self._operators.with_child(str(self._operator), log)
        if birth.model_alias:
            self._models = self._models.with_child(birth.model_alias, log)
            self._spend(birth)
        failure = self._failure(evaluation) if fresh else ""
        if idea is not None:
            self._learn(birth, idea, evaluation, gain, failure)
        if self._births % EVERY == 0:
            self._lessons = distil(self._evidence)

    def improved(self, speedup: float, *, judged: int) -> None:
        """Note the speedup that a run has reached after so many kernels; a new mark when it is better."""
        if speedup >= self._mark * ACCEPTED and speedup > 0:
            self._mark, self._marked = speedup, judged

    @property
    def marked(self) -> int:
        """How many kernels were judged when the last improvement came."""
        return self._marked

    def memory(self, *, judged: int) -> Memory:
        """What is known now, after so many kernels were judged."""
        return Memory(
            operators=self._operators,
            models=self._models,
            spending=dict(self._spending),
            experience=self._experience,
            outcomes=dict(self._outcomes),
            failures=dict(self._failures),
            lessons=still_valid(self._lessons, self._evidence),
            judged=judged,
            stalled=judged - self._marked,
        )

    def _learn(self, birth: Birth, idea: Idea, evaluation: Evaluation | None, gain: Gain | None, failure: str) -> None:
        log = gain.log if gain else None
        bottleneck = bottleneck_class(idea.bottleneck)
        self._experience = self._experience.with_child(idea.technique, bottleneck, birth.island, log)
        evidence = Evidence(number=self._births, kernel=birth.kernel or "", gain=log, signature=failure)
        self._evidence.setdefault((idea.technique, bottleneck), deque(maxlen=REMEMBERED)).append(evidence)
        title = folded(idea.title)
        # Moved to the end: the newest are shown, and the oldest forgotten.
        known = self._outcomes.pop(title, None) or IdeaOutcome(idea=idea)
        self._outcomes[title] = known.after(birth, evaluation, gain)
        if len(self._outcomes) > IDEAS:
            del self._outcomes[next(iter(self._outcomes))]

    def _failure(self, evaluation: Evaluation | None) -> str:
        """Count a failure; its signature, "" for none."""
        if evaluation is None or evaluation.verdict is Verdict.CORRECT:
            return ""
        found = signature(evaluation)
        self._failures[found] = self._failures.pop(found, 0) + 1
        if len(self._failures) > SIGNATURES:
            del self._failures[next(iter(self._failures))]
        return found

    def _spend(self, birth: Birth) -> None:
        before = self._spending.get(birth.model_alias, Spending())
        self._spending[birth.model_alias] = replace(
            before,
            births=before.births + 1,
            prompt_tokens=before.prompt_tokens + birth.prompt_tokens,
            completion_tokens=before.completion_tokens + birth.completion_tokens,
        )
