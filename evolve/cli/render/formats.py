"""Numbers and outcomes in words, the same in every command."""

from kbevolve.archive.formatting import verdict_words
from kbevolve.archive.records import BirthState, Verdict
from kbevolve.evolve.state.population import Population

#: Colour of each verdict on a terminal.
VERDICT_STYLE = {
    Verdict.CORRECT: "green",
    Verdict.WRONG: "red",
    Verdict.TIMED_OUT: "yellow",
    Verdict.CRASHED: "red",
    Verdict.BUILD_FAILED: "yellow",
    Verdict.REFUSED: "magenta",
}


def count_words(population: Population) -> str:
    """``46 kernels: 41 correct (2 as compiled before), 3 wrong, 2 duplicate (1 under other names), 1 familiar``."""
    verdicts, states = population.verdicts, population.states
    twins = f" ({population.twins} as compiled before)" if population.twins else ""
    parts = [
        f"{verdicts[verdict]} {verdict_words(verdict)}{twins if verdict is Verdict.CORRECT else ''}"
        for verdict in reversed(Verdict)
        if verdicts[verdict]
    ]
    renamed = f" ({population.renamed} under other names)" if population.renamed else ""
    parts += [
        f"{states[state]} {state.value}{renamed if state is BirthState.DUPLICATE else ''}"
        for state in BirthState
        if state is not BirthState.CREATED and states[state]
    ]
    total = verdicts.total()
    return f"{total} kernel{'' if total == 1 else 's'}: {', '.join(parts) or 'none judged yet'}"
