"""One child of the benchmark's mix: a whole ModelNew file, and what a right verdict on it is."""

from dataclasses import dataclass
from enum import StrEnum

from kbevolve.archive.records import Kernel, Verdict


class Kind(StrEnum):
    """How a child is written and built."""

    TRITON = "triton"
    FAST = "fast lane"  # raw pointers: cpp_extension.load(is_python_module=False) and ctypes, no torch headers
    INLINE = "load_inline"  # torch/extension.h, as most kernels for KernelBench are written
    TORCH = "torch"  # nothing to build; in the small mix for the CPU only


class Fate(StrEnum):
    """What becomes of a child."""

    CORRECT = "correct"
    WRONG = "wrong"
    FAILING = "failing"  # does not compile, raises, or reads memory that is not its own
    SLOW = "slow"  # right, but more than twice slower than the reference


class Outcome(StrEnum):
    """What both evaluators can say about a child."""

    CORRECT = "correct"
    INCORRECT = "incorrect"
    FAILED = "failed"


#: Our verdicts in KernelBench's words. A refusal is none of them: it is always a difference.
OUTCOMES = {
    Verdict.CORRECT: Outcome.CORRECT,
    Verdict.WRONG: Outcome.INCORRECT,
    Verdict.BUILD_FAILED: Outcome.FAILED,
    Verdict.CRASHED: Outcome.FAILED,
    Verdict.TIMED_OUT: Outcome.FAILED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """One child. Its name is unique in a mix."""

    name: str
    #: Name of its problem, e.g. "L1/matmul".
    problem: str
    kind: Kind
    fate: Fate
    #: What it does, and for the wrong and the failing what is the matter with it; one line.
    summary: str
    #: The verdict that it must get from the judge.
    verdict: Verdict
    source: str

    @property
    def kernel(self) -> Kernel:
        """The child as the judge takes it."""
        return Kernel.from_source(self.source)

    @property
    def outcome(self) -> Outcome:
        """The verdict in KernelBench's words."""
        return OUTCOMES[self.verdict]


#: Verdict of a fate that has only one.
_VERDICTS = {Fate.CORRECT: Verdict.CORRECT, Fate.SLOW: Verdict.CORRECT, Fate.WRONG: Verdict.WRONG}


def verdict_of(fate: Fate, failure: Verdict | None) -> Verdict:
    """The expected verdict; a failing child says by which it fails."""
    if failure is not None:
        return failure
    return _VERDICTS[fate]


def declared(**values: int | str) -> str:
    """Lines ``constexpr int NAME = value;`` for the head of a CUDA or C++ source."""
    return "".join(f"constexpr int {name} = {value};\n" for name, value in values.items())


def edited(text: str, *changes: tuple[str, str]) -> str:
    """The text with each piece replaced by another: how a wrong child differs from a right one.

    Raises:
        ValueError: a piece does not occur exactly once, so that the change would not be the one that was meant.
    """
    for old, new in changes:
        if text.count(old) != 1:
            raise ValueError(f"{old!r} occurs {text.count(old)} times; it must occur once to be replaced")
        text = text.replace(old, new)
    return text
