"""Counts and verdicts in words, the same in every command."""

from collections.abc import Mapping

from kbevolve.archive.formatting import counted, verdict_words
from kbevolve.archive.records import BirthState, Verdict
from kbevolve.evolve.state.totals import RunTotals

#: Colour of each verdict on a terminal.
VERDICT_STYLE = {
    Verdict.CORRECT: "green",
    Verdict.WRONG: "red",
    Verdict.TIMED_OUT: "yellow",
    Verdict.CRASHED: "red",
    Verdict.BUILD_FAILED: "yellow",
    Verdict.REFUSED: "magenta",
}


def counts_words(counts: Mapping[str, int]) -> str:
    """``41 correct, 3 wrong``; zeros are left out."""
    return ", ".join(f"{count} {words}" for words, count in counts.items() if count)


def count_words(totals: RunTotals) -> str:
    """``46 kernels: 41 correct (2 with identical binaries), 3 wrong, 2 duplicate (1 under other names)``."""
    identical = f" ({totals.identical} with identical binaries)" if totals.identical else ""
    renamed = f" ({totals.renamed} under other names)" if totals.renamed else ""
    counts = {
        f"{verdict_words(verdict)}{identical if verdict is Verdict.CORRECT else ''}": totals.verdicts[verdict]
        for verdict in reversed(Verdict)
    } | {
        f"{state.value}{renamed if state is BirthState.DUPLICATE else ''}": totals.states[state]
        for state in BirthState
        if state is not BirthState.CREATED
    }
    return f"{counted(totals.judged, 'kernel')}: {counts_words(counts) or 'none judged yet'}"
