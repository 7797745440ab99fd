"""When two failures, two bottlenecks or two titles count as one: whatever words a model or a machine chose."""

import re
from collections.abc import Mapping

from kbevolve.archive.formatting import verdict_words
from kbevolve.archive.records import Evaluation

#: Characters of a signature's line: enough to name the mistake, too little to imitate it.
LENGTH = 160
#: What differs between two failures of one kind: paths, addresses and numbers.
_PATHS = re.compile(r"(?:/[\w.+-]+)+/")
_NUMBERS = re.compile(
    r"0x[0-9a-fA-F]+|(?<![0-9a-zA-Z])[0-9a-f]{12,}(?![0-9a-zA-Z])|[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"
)

MEMORY, ARITHMETIC, LATENCY, LAUNCHES, IDLE = "memory", "arithmetic", "latency", "launches", "idle processors"
#: Class of bottleneck -> words that show it. The first that fits is taken: "memory latency" is latency, and "shared
#: memory" memory.
_WORDS: Mapping[str, re.Pattern[str]] = {
    name: re.compile(words, re.IGNORECASE)
    for name, words in (
        (LAUNCHES, r"launch|overhead|host|dispatch"),
        (LATENCY, r"latenc|dependen|stall|synchron|barrier|pipelin"),
        (IDLE, r"idle|occupan|parallelism|utili[sz]|imbalance|tail|wave|processors|underus"),
        (MEMORY, r"memor|bandwidth|traffic|dram|hbm|cache|bytes|\bloads?\b|\bstores?\b|bank|coalesc"),
        (ARITHMETIC, r"arith|compute|flop|\balu|\bfma|tensor|instruction|issue|function|\bsfu|math"),
    )
}


#: Share of their words that two titles of one idea have in common, at least; and words that do not count.
SHARED = 0.55
_FILLERS = frozenset(("a", "an", "and", "as", "at", "by", "for", "from", "in", "of", "on", "one", "the", "to", "with"))


def first_line(evaluation: Evaluation) -> str:
    """``wrong: first wrong element at (0, 512)``, in one line of no more than `LENGTH` characters of the message."""
    line = next((line.strip() for line in evaluation.message.splitlines() if line.strip()), "")
    return f"{verdict_words(evaluation.verdict)}: {line[:LENGTH]}".removesuffix(": ")


def signature(evaluation: Evaluation) -> str:
    """The same for all failures of one kind: its first line with ``#`` for numbers and without folders."""
    return _NUMBERS.sub("#", _PATHS.sub("", first_line(evaluation)))


def bottleneck_class(words: str) -> str:
    """``memory``, ``arithmetic``, ``latency``, ``launches`` or ``idle processors``; "" when the words show none.

    Models use words of their own, and credit needs arms that recur.
    """
    return next((name for name, pattern in _WORDS.items() if pattern.search(words)), "")


def same_idea(one: str, other: str) -> bool:
    """Whether two titles name one idea, by the share of words that they have in common (Dice 1945).

    Of 72 ideas of a model for three problems, 26 pairs of two islands are above `SHARED`; 24 of them are one idea, as
    we read them (`tests/evolve/state/titles.csv`).
    """
    first, second = (set(folded(title).split()) - _FILLERS for title in (one, other))
    return 2 * len(first & second) >= SHARED * max(len(first) + len(second), 1)


def folded(title: str) -> str:
    """A title without case and punctuation, so that "Larger tiles." and "larger-tiles" are one."""
    return " ".join(re.findall(r"\w+", title.lower()))
