"""Numbers and units as text, with as many digits as a measurement justifies."""

from kbevolve.archive.records import BirthState, Comparison, Confirmation, Evaluation, ProblemCard, Verdict


def three_digits(value: float) -> str:
    """``0.0512``, ``3.40``, ``12.4`` or ``1234``."""
    return f"{value:#.3g}".rstrip(".") if value < 999.5 else f"{value:.0f}"


def as_times(speedup: float) -> str:
    """A speedup: ``3.40×``."""
    return f"{three_digits(speedup)}×"


def over_eager(words: str, speedup: float | None) -> str:
    """A speedup in `words` as a comparison: ``3.40× over eager``, or ``0.19× of eager's speed`` for a slower kernel."""
    return f"{words} over eager" if (speedup or 0.0) >= 1 else f"{words} of eager's speed"


def percent_words(share: float | None, digits: int = 0) -> str:
    """A share of 1: ``87 %``; a dash when it is unknown."""
    return "–" if share is None else f"{100 * share:.{digits}f} %"


#: Marks a speedup that was measured again in a contest.
CONFIRMED = "(confirmed)"


def verdict_words(verdict: Verdict) -> str:
    """``build failed`` for BUILD_FAILED."""
    return verdict.name.lower().replace("_", " ")


#: What tells a run without a stop reason; the archive cannot distinguish the two.
NOT_STOPPED = "running, or its process was killed"


def device_words(fingerprint: str) -> str:
    """``NVIDIA H200, sm_90, torch 2.11.0``: a fingerprint without the type of the device."""
    return " + ".join(one.partition("/")[2].replace("/", ", ") or one for one in fingerprint.split(" + "))


def state_words(state: BirthState) -> str:
    """What became of an attempt: ``duplicate``, ``nothing new`` for EXHAUSTED."""
    return "nothing new" if state is BirthState.EXHAUSTED else state.value


def speedup_words(evaluation: Evaluation | None) -> str:
    """``3.42× [3.38, 3.45]``, or a dash when there is no speedup."""
    if evaluation is None or evaluation.timing.speedup is None:
        return "–"
    words = as_times(evaluation.timing.speedup)
    if evaluation.timing.speedup_low is not None and evaluation.timing.speedup_high is not None:
        words += f" {interval_words(evaluation.timing.speedup_low, evaluation.timing.speedup_high)}"
    return words


def confirmed_words(confirmation: Confirmation) -> str:
    """``1.94× (confirmed) [1.92, 1.96]``."""
    interval = interval_words(confirmation.speedup_low, confirmation.speedup_high)
    return f"{as_times(confirmation.speedup)} {CONFIRMED} {interval}"


#: Upper over lower end of an interval from which on it is no tie, but no measurement.
_SAYS_NOTHING = 2.0


def comparison_words(comparison: Comparison, rival: str, low: float | None, high: float | None, ratio: str = "") -> str:
    """``faster than eager``, or ``a tie with eager``, and then why it is one; after `ratio`, if that is given.

    `low` and `high` are the ends of the interval of its speed over the rival's.
    """
    shown = f": {ratio} its speed" if ratio else ""
    if comparison is not Comparison.TIE:
        return f"{comparison.value} than {rival}{shown}"
    if not low or not high:
        return f"a tie with {rival}{shown}"
    if low <= 1 <= high and high / low >= _SAYS_NOTHING:
        wide = f"the ends of its interval differ by a factor {three_digits(high / low)}"
        return f"unknown against {rival}{shown}: {wide}; measure again on a quiet machine"
    if low <= 1 <= high:
        return f"a tie with {rival}{shown}, and the interval includes 1"
    least = percent_words(max(low - 1, 1 / high - 1), 1)
    return f"a tie with {rival}{shown}, because processes with one kernel differed by {least} or more here"


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
        return f"{three_digits(milliseconds * 1000)} µs"
    return f"{three_digits(milliseconds)} ms" if milliseconds < 1000 else f"{three_digits(milliseconds / 1000)} s"


def launching_fields(evaluation: Evaluation) -> dict[str, str]:
    """What KernelBench's timing shows, and the host's time to launch a call; empty where they were not measured."""
    cost = evaluation.profile.launch_cost if evaluation.profile else None
    if cost is None:
        return {}
    speedup = over_eager(as_times(cost.kernelbench_speedup), cost.kernelbench_speedup)
    launches = f"{cost.launches:.3g} a call, for which" if cost.launches else "for a call"
    times = f"{time_words(cost.kernelbench_ms)}, eager {time_words(cost.kernelbench_reference_ms)}"
    return {
        "KernelBench": f"{speedup}, {times}, by its way of timing (cuda_event), which includes slow launches",
        "launches": f"{launches} the host needs {time_words(cost.host_ms)}, eager {time_words(cost.reference_host_ms)}",
    }


def duration_words(seconds: float) -> str:
    """``0:42`` or ``1:02:03``."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def counted(number: int, one: str, several: str = "") -> str:
    """``1 kernel`` or ``1,200 kernels``."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def size_words(count: int) -> str:
    """``842 bytes``, ``67.1 MB``."""
    return _scaled(count, (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)), "bytes")


def operation_words(count: int) -> str:
    """``137 GFLOP``."""
    return _scaled(count, (("TFLOP", 1e12), ("GFLOP", 1e9), ("MFLOP", 1e6), ("kFLOP", 1e3)), "FLOP")


def input_words(card: ProblemCard) -> str:
    """``67.1 MB and 4.19 MB of weights``."""
    return size_words(card.input_bytes) + (
        f" and {size_words(card.weight_bytes)} of weights" if card.weight_bytes else ""
    )


def _scaled(count: float, units: tuple[tuple[str, float], ...], smallest: str) -> str:
    for unit, factor in units:
        if count >= factor:
            return f"{three_digits(count / factor)} {unit}"
    return f"{count:.0f} {smallest}"
