"""Counts and verdicts in words, the same in every command."""

from collections.abc import Mapping

from kbevolve.archive.formatting import counted, state_words, verdict_words
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
    """``44 kernels from 50 attempts: 41 correct (2 with identical binaries), 3 wrong; other attempts: 6 duplicate``."""
    identical = f" ({totals.identical} with identical binaries)" if totals.identical else ""
    renamed = f" ({totals.renamed} under other names)" if totals.renamed else ""
    counts = {
        f"{verdict_words(verdict)}{identical if verdict is Verdict.CORRECT else ''}": totals.verdicts[verdict]
        for verdict in reversed(Verdict)
    }
    others = {
        f"{state_words(state)}{renamed if state is BirthState.DUPLICATE else ''}": totals.states[state]
        for state in BirthState
        if state is not BirthState.CREATED
    }
    words = f"{counted(totals.judged, 'kernel')} from {counted(totals.states.total(), 'attempt')}"
    words += f": {counts_words(counts) or 'none judged yet'}"
    return words + (f"; other attempts: {counts_words(others)}" if any(others.values()) else "")
