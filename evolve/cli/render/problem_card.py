"""A problem's card in words: what bounds the problem, how far eager is from that bound, and what is odd about it."""

from collections.abc import Mapping

from rich.text import Text

from kbevolve.archive.formatting import three_digits
from kbevolve.archive.records import ProblemCard
from kbevolve.configs.flaws import Flaw
from kbevolve.evolve.cli.render.formats import time_words

#: The precision class that a task asks for.
TASK_CLASS = {"fp32": "fp32", "tf32": "tf32", "fp16": "half", "bf16": "half"}
#: Flags that help whoever writes a kernel. The others tell how the judge might be fooled.
_HELPFUL = ("launch-bound", "reducible", "dead-code", "in-place")
#: A flag that stops the judge, and those that weaken what it finds; the rest inform.
_STYLES = {"degenerate": "bold red", "nondeterministic": "red", "not-finite": "red", "low-signal": "yellow"}


def bound_by(card: ProblemCard) -> str:
    """What decides the roofline's time at the task's precision: ``memory`` or ``arithmetic``."""
    return "arithmetic" if _roofline_ms(card) > card.memory_ms * 1.001 else "memory"


def prompt_lines(card: ProblemCard) -> list[str]:
    """What a model should know that writes a kernel for it; never what the judge looks at."""
    lines = [f"It must read {_inputs(card)} and write {_size(card.output_bytes)}{_work(card)}."]
    if _roofline_ms(card):
        limit = "memory bandwidth" if bound_by(card) == "memory" else "the arithmetic"
        lines.append(
            f"On this device {limit} bounds it: at the roofline a call takes {time_words(_roofline_ms(card))}, "
            f"eager PyTorch takes {time_words(card.eager_ms)}."
        )
    return lines + [f"{flag.capitalize()}: {card.flags[flag]}." for flag in _HELPFUL if flag in card.flags]


def card_fields(card: ProblemCard, flaws: tuple[Flaw, ...]) -> Mapping[str, str | Text]:
    """Names and values for a terminal."""
    fields: dict[str, str | Text] = {"verdict": _verdict(card)}
    fields["reads"] = _inputs(card)
    fields["writes"] = _size(card.output_bytes)
    fields["computes"] = f"{_operations(card.flops)} in products" if card.flops else "no products"
    fields["bound by"] = bound_by(card) + (f", {_intensity(card)}" if card.flops else "")
    fields["eager"] = time_words(card.eager_ms) + (f", {_share(card)} of the roofline" if _roofline_ms(card) else "")
    fields["roofline"] = _by_class(card.roofline_ms)
    fields["floor"] = _by_class(card.floor_ms) if any(card.floor_ms.values()) else "none that is certain"
    for flag, reason in card.flags.items():
        fields[flag] = Text(reason, style=_STYLES.get(flag, ""))
    if flaws:
        fields["known"] = "\n".join(flaw.words for flaw in flaws)
    return fields


def _verdict(card: ProblemCard) -> Text:
    if card.degenerate:
        return Text("refused: its answer hardly depends on its input; --force judges it all the same", "bold red")
    doubts = [flag for flag in _STYLES if flag in card.flags]
    if doubts:
        return Text(f"accepted, with doubts: {', '.join(doubts)}", "yellow")
    return Text("accepted", "green")


def _roofline_ms(card: ProblemCard) -> float:
    return card.roofline_ms.get(TASK_CLASS[card.precision], 0.0)


def _share(card: ProblemCard) -> str:
    """Eager's part of the roofline. Convolutions may beat it: Winograd's way multiplies less than the definition."""
    return f"{_roofline_ms(card) / card.eager_ms:.0%}" if card.eager_ms else "–"


def _inputs(card: ProblemCard) -> str:
    return _size(card.input_bytes) + (f" and {_size(card.weight_bytes)} of weights" if card.weight_bytes else "")


def _work(card: ProblemCard) -> str:
    return f", and computes {_operations(card.flops)} in products" if card.flops else ""


def _intensity(card: ProblemCard) -> str:
    moved = card.input_bytes + card.weight_bytes + card.output_bytes
    return f"{three_digits(card.flops / moved) if moved else 0} operations a byte"


def _by_class(times: Mapping[str, float]) -> str:
    """``fp32 1.20 ms, tf32/half 842 µs``: classes that share a time stand together, and fp64's is always fp32's."""
    together: dict[str, list[str]] = {}
    for name, milliseconds in times.items():
        if name != "fp64":
            together.setdefault(time_words(milliseconds), []).append(name)
    if len(together) == 1:
        return next(iter(together))
    return ", ".join(f"{'/'.join(names)} {words}" for words, names in together.items())


def _size(count: int) -> str:
    return _scaled(count, (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)), "bytes")


def _operations(count: int) -> str:
    return _scaled(count, (("TFLOP", 1e12), ("GFLOP", 1e9), ("MFLOP", 1e6), ("kFLOP", 1e3)), "FLOP")


def _scaled(count: float, units: tuple[tuple[str, float], ...], smallest: str) -> str:
    for unit, factor in units:
        if count >= factor:
            return f"{three_digits(count / factor)} {unit}"
    return f"{count:.0f} {smallest}"
