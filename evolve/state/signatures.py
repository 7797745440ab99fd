"""What failures have in common: the verdict and the first line of the message, without what differs by chance."""

import re

from kbevolve.archive.records import Evaluation

#: Characters of a signature's line: enough to name the mistake, too little to imitate it.
LENGTH = 160

#: What differs between two failures of one kind: paths, addresses and numbers.
_PATHS = re.compile(r"(?:/[\w.+-]+)+/")
_NUMBERS = re.compile(
    r"0x[0-9a-fA-F]+|(?<![0-9a-zA-Z])[0-9a-f]{12,}(?![0-9a-zA-Z])|[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"
)


def first_line(evaluation: Evaluation) -> str:
    """``wrong: first wrong element at (0, 512)``, in one line of no more than `LENGTH` characters of the message."""
    line = next((line.strip() for line in evaluation.message.splitlines() if line.strip()), "")
    return f"{evaluation.verdict.name.lower().replace('_', ' ')}: {line[:LENGTH]}".removesuffix(": ")


def signature(evaluation: Evaluation) -> str:
    """The same for all failures of one kind: its first line with ``#`` for numbers and without folders."""
    return _NUMBERS.sub("#", _PATHS.sub("", first_line(evaluation)))
