"""Counts and verdicts in words, the same in every command."""

from kbevolve.archive.formatting import verdict_words
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


def count_words(totals: RunTotals) -> str:
    """``46 kernels: 41 correct (2 with identical binaries), 3 wrong, 2 duplicate (1 under other names)``."""
    verdicts, states = totals.verdicts, totals.states
    identical = f" ({totals.identical} with identical binaries)" if totals.identical else ""
    parts = [
        f"{verdicts[verdict]} {verdict_words(verdict)}{identical if verdict is Verdict.CORRECT else ''}"
        for verdict in reversed(Verdict)
        if verdicts[verdict]
    ]
    renamed = f" ({totals.renamed} under other names)" if totals.renamed else ""
    parts += [
        f"{states[state]} {state.value}{renamed if state is BirthState.DUPLICATE else ''}"
        for state in BirthState
        if state is not BirthState.CREATED and states[state]
    ]
    total = totals.judged
    return f"{total} kernel{'' if total == 1 else 's'}: {', '.join(parts) or 'none judged yet'}"
