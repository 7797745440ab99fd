"""Numbers and outcomes in words, the same in every command."""

from kbevolve.archive.formatting import as_times, three_digits
from kbevolve.archive.records import BirthState, Confirmation, Evaluation, Verdict
from kbevolve.evolve.state.population import Population

#: What stands behind a number that was measured again in a contest.
CONFIRMED = "(confirmed)"

#: Colour of each verdict on a terminal.
VERDICT_STYLE = {
    Verdict.CORRECT: "green",
    Verdict.WRONG: "red",
    Verdict.TIMED_OUT: "yellow",
    Verdict.CRASHED: "red",
    Verdict.BUILD_FAILED: "yellow",
    Verdict.REFUSED: "magenta",
}


def verdict_words(verdict: Verdict) -> str:
    """``build failed`` for BUILD_FAILED."""
    return verdict.name.lower().replace("_", " ")


def speedup_words(evaluation: Evaluation | None) -> str:
    """``3.42× [3.38, 3.45]``, or a dash when there is no speedup."""
    if evaluation is None or evaluation.speedup is None:
        return "–"
    words = as_times(evaluation.speedup)
    if evaluation.speedup_low is not None and evaluation.speedup_high is not None:
        words += f" {interval_words(evaluation.speedup_low, evaluation.speedup_high)}"
    return words


def confirmed_words(confirmation: Confirmation) -> str:
    """``1.94× (confirmed) [1.92, 1.96]``."""
    interval = interval_words(confirmation.speedup_low, confirmation.speedup_high)
    return f"{as_times(confirmation.speedup)} {CONFIRMED} {interval}"


def published_words(confirmation: Confirmation | None, evaluation: Evaluation | None) -> str:
    """The confirmed speedup where there is one, else the evaluation's; a dash where there is neither."""
    return confirmed_words(confirmation) if confirmation else speedup_words(evaluation)


def interval_words(low: float, high: float) -> str:
    """``[1.92, 1.96]``."""
    return f"[{three_digits(low)}, {three_digits(high)}]"


def time_words(milliseconds: float | None) -> str:
    """``842 µs``, ``3.42 ms`` or ``1.20 s``."""
    if milliseconds is None:
        return "–"
    if milliseconds < 1:
        return f"{milliseconds * 1000:.3g} µs"
    return f"{milliseconds:.3g} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.3g} s"


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
        if state is not BirthState.BORN and states[state]
    ]
    total = verdicts.total()
    return f"{total} kernel{'' if total == 1 else 's'}: {', '.join(parts) or 'none judged yet'}"


def duration_words(seconds: float) -> str:
    """``0:42`` or ``1:02:03``."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
