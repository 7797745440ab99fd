"""Every error that kbevolve raises on purpose.

KBEvolveError                the installation or its use is wrong; `str()` is one line with the remedy
├── UsageError               the request cannot be fulfilled (exit code 2)
│   ├── ProblemError         a problem is missing or malformed
│   └── SettingsError        an unknown setting, or a value out of its range
├── ArchiveError             the archive cannot be opened, read or written
├── RecordError              a line of a file, or a message of another process, is not the expected record
├── ProposerError            the proposer cannot work at all (no endpoint, no credit, …)
├── EvaluatorError           the judge cannot work (no compiler, the reference itself fails, …)
└── Unanswered               a question to a person, an agent or another judge has no answer yet: not a failure

A bad kernel is never an exception: it is an `Evaluation` with its verdict.
Each message says what we got, what we wanted and what to do.
"""

import difflib
from collections.abc import Iterable


class KBEvolveError(Exception):
    """Base of all errors raised on purpose."""


class UsageError(KBEvolveError):
    """The request itself is wrong."""


class ProblemError(UsageError):
    """A problem is missing or is not in KernelBench's format."""


class SettingsError(UsageError):
    """An unknown setting or a value that is not allowed."""


class ArchiveError(KBEvolveError):
    """The archive cannot be opened, read or written."""


class RecordError(KBEvolveError):
    """Input from outside is not the expected record."""


class ProposerError(KBEvolveError):
    """The proposer cannot work at all; one bad answer is not an error."""


class EvaluatorError(KBEvolveError):
    """The judge cannot work; a bad kernel is not an error."""


class Unanswered(KBEvolveError):
    """A person, an agent or another judge has not answered yet, or the time of a run is over: it stops, resumable."""


def nearest(name: str, known: Iterable[str], *, count: int = 3) -> str:
    """A sentence with the known names nearest to `name`, e.g. ``Nearest: L1/matmul, L1/gelu.``

    Returns the whole list of known names (up to 12) when none is near.
    """
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=count, cutoff=0.5)
    if close:
        return f"Nearest: {', '.join(close)}."
    if not names:
        return "There are none."
    shown = ", ".join(names[:12])
    return f"There are: {shown}{', …' if len(names) > 12 else ''}."
