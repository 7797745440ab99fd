"""A problem card in words: what bounds the problem, how far eager is from that bound, and its flaws."""

from collections.abc import Mapping

from rich.text import Text

from kbevolve.archive.formatting import input_words, operation_words, size_words, three_digits, time_words
from kbevolve.archive.records import ProblemCard
from kbevolve.configs.flaws import Flaw

#: Flags by severity: the first stops the judge, the others weaken its verdicts.
_STYLES = {"degenerate": "bold red", "nondeterministic": "red", "not-finite": "red", "low-signal": "yellow"}


def card_fields(card: ProblemCard, flaws: tuple[Flaw, ...]) -> Mapping[str, str | Text]:
    """Names and values for a terminal."""
    fields: dict[str, str | Text] = {"verdict": _verdict(card)}
    fields["reads"] = input_words(card)
    fields["writes"] = size_words(card.output_bytes)
    fields["computes"] = f"{operation_words(card.flops)} in products" if card.flops else "no matrix products"
    fields["bound by"] = card.bound_by + (f", {_intensity(card)}" if card.flops else "")
    fields["eager"] = time_words(card.eager_ms) + (f", {_share(card)} of the roofline" if card.task_roofline_ms else "")
    fields["roofline"] = _by_class(card.roofline_ms)
    fields["floor"] = _by_class(card.floor_ms) if any(card.floor_ms.values()) else "none known with certainty"
    for flag, reason in card.flags.items():
        fields[flag] = Text(reason, style=_STYLES.get(flag, ""))
    if flaws:
        fields["known"] = "\n".join(flaw.words for flaw in flaws)
    return fields


def _verdict(card: ProblemCard) -> Text:
    if card.degenerate:
        return Text("refused: its answer hardly depends on its input; --force judges kernels anyway", "bold red")
    doubts = [flag for flag in _STYLES if flag in card.flags]
    if doubts:
        return Text(f"accepted, with doubts: {', '.join(doubts)}", "yellow")
    return Text("accepted", "green")


def _share(card: ProblemCard) -> str:
    """Eager's share of the roofline; convolutions may exceed it, because Winograd's algorithm multiplies less."""
    return f"{card.task_roofline_ms / card.eager_ms:.0%}" if card.eager_ms else "–"


def _intensity(card: ProblemCard) -> str:
    moved = card.input_bytes + card.weight_bytes + card.output_bytes
    return f"{three_digits(card.flops / moved) if moved else 0} operations a byte"


def _by_class(times: Mapping[str, float]) -> str:
    """``fp32 1.20 ms, tf32/half 842 µs``: classes with one time are joined; fp64 has the time of fp32."""
    together: dict[str, list[str]] = {}
    for name, milliseconds in times.items():
        if name != "fp64":
            together.setdefault(time_words(milliseconds), []).append(name)
    if len(together) == 1:
        return next(iter(together))
    return ", ".join(f"{'/'.join(names)} {words}" for words, names in together.items())
