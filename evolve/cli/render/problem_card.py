"""A problem card in words: what bounds the problem, how far eager is from that bound, and its flaws."""

from collections.abc import Mapping

from rich.text import Text

from kbevolve.archive.formatting import (
    input_words,
    operation_words,
    percent_words,
    size_words,
    three_digits,
    time_words,
)
from kbevolve.archive.records import ProblemCard
from kbevolve.configs.flaws import Flaw
from kbevolve.evaluators.analysis.rates import product_times

#: Flags by severity: the first stops the judge, the others weaken its verdicts.
_STYLES = {"degenerate": "bold red", "nondeterministic": "red", "not-finite": "red", "low-signal": "yellow"}


def card_fields(card: ProblemCard, flaws: tuple[Flaw, ...]) -> Mapping[str, str | Text]:
    """Names and values for a terminal."""
    moved = card.input_bytes + card.weight_bytes + card.output_bytes
    intensity = f", {three_digits(card.flops / moved) if moved else 0} operations a byte" if card.flops else ""
    # Convolutions may exceed the roofline, because Winograd's algorithm multiplies less.
    share = percent_words(card.task_roofline_ms / card.eager_ms if card.eager_ms else None)
    return {
        "verdict": _verdict(card),
        "reads": input_words(card),
        "writes": size_words(card.output_bytes),
        "computes": f"{operation_words(card.flops)} in products" if card.flops else "no matrix products",
        "bound by": f"{card.bound_by}{intensity}",
        "products": ", ".join(f"{way} {time_words(time)}" for way, time in product_times(card).items()),
        "eager": time_words(card.eager_ms) + (f", {share} of the roofline" if card.task_roofline_ms else ""),
        "roofline": _by_class(card.roofline_ms),
        "floor": _by_class(card.floor_ms) if any(card.floor_ms.values()) else "none known with certainty",
        **{flag: Text(reason, style=_STYLES.get(flag, "")) for flag, reason in card.flags.items()},
        "known": "\n".join(flaw.words for flaw in flaws),
    }


def _verdict(card: ProblemCard) -> Text:
    if card.unjudgeable:
        return Text(f"refused: {card.unjudgeable}", "bold red")
    if card.degenerate:
        return Text("refused: its answer hardly depends on its input; --force judges kernels anyway", "bold red")
    doubts = [flag for flag in _STYLES if flag in card.flags]
    if doubts:
        return Text(f"accepted, with doubts: {', '.join(doubts)}", "yellow")
    return Text("accepted", "green")


def _by_class(times: Mapping[str, float]) -> str:
    """``fp32 1.20 ms, tf32/half 842 µs``: classes with one time are joined; fp64 has the time of fp32."""
    together: dict[str, list[str]] = {}
    for name, milliseconds in times.items():
        if name != "fp64":
            together.setdefault(time_words(milliseconds), []).append(name)
    if len(together) == 1:
        return next(iter(together))
    return ", ".join(f"{'/'.join(names)} {words}" for words, names in together.items())
