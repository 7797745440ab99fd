"""Children that were tried, and how they failed: what later prompts learn from."""

from dataclasses import dataclass

from kbevolve.archive.records import Birth, Evaluation, Idea, Kernel, Verdict

_FARED = {
    Verdict.REFUSED: "was refused",
    Verdict.BUILD_FAILED: "did not compile",
    Verdict.CRASHED: "crashed",
    Verdict.TIMED_OUT: "took too long",
    Verdict.WRONG: "was wrong",
    Verdict.CORRECT: "was much slower than its parent",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Likeness:
    """A kernel that a child nearly equals, and how it fared."""

    #: Kernel id.
    kernel: str
    #: Share of the text that both have in common, 0 to 1.
    share: float
    evaluation: Evaluation

    @property
    def fared(self) -> str:
        """How the other fared: ``was wrong``, ``crashed``, ``was much slower than its parent``."""
        return _FARED[self.evaluation.verdict]

    @property
    def words(self) -> str:
        """``shares 97 % of its text with 3f2a9c…, which was wrong``."""
        return f"shares {100 * self.share:.0f} % of its text with {self.kernel}, which {self.fared}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A child that did not work, for the prompt of the next."""

    kernel: Kernel
    #: What the judge found; of a child that was not judged (`like`), what it found about the other.
    evaluation: Evaluation
    #: The idea it tried, None when it followed none.
    idea: Idea | None = None
    #: The kernel that it nearly equals, so that it was not judged; None for one that was judged.
    like: Likeness | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A birth that is through, and what came of it."""

    birth: Birth
    #: None when no kernel came of it.
    kernel: Kernel | None = None
    #: None likewise.
    evaluation: Evaluation | None = None
    #: The idea it carried out, None when it followed none.
    idea: Idea | None = None

    @property
    def failure(self) -> Failure | None:
        """For the prompt of the next; None when it works or was not judged."""
        if self.kernel is None or self.evaluation is None or self.evaluation.verdict is Verdict.CORRECT:
            return None
        return Failure(kernel=self.kernel, evaluation=self.evaluation, idea=self.idea)
