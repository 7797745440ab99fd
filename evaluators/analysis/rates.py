"""Effective rates of a time on a problem's card, and its share of the roofline.

Effective rates count the problem's own bytes and operations, not those of the kernel: a kernel that reads its input
twice shows half of the bandwidth that it uses, and that half is what it can gain.
"""

from kbevolve.archive.records import ProblemCard

#: By the task's precision: how its products can be computed -> formats of the operands, and products of each. 3 of TF32
#: or fp16 parts are as accurate as fp32, and so are 6 of bf16, which has 8 bits a part. (3 of bf16 have E = 6e-6, which
#: the judge accepts; they take as long as 3 of fp16.) It also accepts one of fp16 and two of fp8 for what multiplies a
#: low part: E = 1e-5 to 4e-5.
_WAYS: dict[str, dict[str, dict[str, int]]] = {
    "fp32": {
        "fp32": {"fp32": 1},
        "3 TF32": {"tf32": 3},
        "3 fp16": {"fp16": 3},
        "6 bf16": {"bf16": 6},
        "fp16 and 2 fp8": {"fp16": 1, "fp8": 2},
    },
    "tf32": {"TF32": {"tf32": 1}, "fp16": {"fp16": 1}},
    "fp16": {"fp16": {"fp16": 1}},
    "bf16": {"bf16": {"bf16": 1}},
}


def bytes_of(card: ProblemCard) -> int:
    """Bytes moved when every input, weight and output is read or written once."""
    return card.input_bytes + card.weight_bytes + card.output_bytes


def gigabytes_per_second(card: ProblemCard | None, time_ms: float) -> float | None:
    """Effective bandwidth; None without a card."""
    return bytes_of(card) / (time_ms / 1e3) / 1e9 if card and bytes_of(card) and time_ms > 0 else None


def teraflops(card: ProblemCard | None, time_ms: float) -> float | None:
    """Effective TFLOP/s of the products; None without a card or where there are none."""
    return card.flops / (time_ms / 1e3) / 1e12 if card and card.flops and time_ms > 0 else None


def product_times(card: ProblemCard) -> dict[str, float]:
    """Milliseconds that the problem's products take at the measured peaks, for each way that is accurate enough.

    The keys are ``fp32``, ``3 TF32``, ``3 fp16``, ``6 bf16`` and ``fp16 and 2 fp8`` for an fp32 task on a GPU, ``fp32``
    on a CPU. Empty without products, or where the rates are not known. Nothing is padded; products that zeros save are
    left out.
    """
    splits = "tf32" in card.peaks or card.precision != "fp32"  # not on a CPU
    return {
        way: sum(count * card.required_flops / card.peaks[name] for name, count in formats.items()) * 1e3
        for way, formats in _WAYS[card.precision].items()
        if card.required_flops and formats.keys() <= card.peaks.keys() and (splits or way == "fp32")
    }


def roofline_share(card: ProblemCard | None, precision_class: str | None, time_ms: float) -> float | None:
    """The roofline's time over the kernel's, 0 to 1; None where the card has no roofline of that class.

    It is capped at 1: data that stays in the L2 between calls, or unread inputs, can make a kernel faster than that.
    """
    roofline = card.roofline_ms.get(precision_class or "") if card else None
    return min(1.0, roofline / time_ms) if roofline and time_ms > 0 else None


def percent(share: float) -> str:
    """``81 %``; ``under 1 %`` for less."""
    return f"{100 * share:.0f} %" if share >= 0.005 else "under 1 %"


def three_digits(value: float) -> str:
    """``0.0512``, ``12.4`` or ``1234``."""
    return f"{value:.3g}" if value < 999.5 else f"{value:.0f}"


def duration(milliseconds: float) -> str:
    """``412 µs`` or ``1.24 ms``."""
    return f"{1e3 * milliseconds:.3g} µs" if milliseconds < 0.9995 else f"{three_digits(milliseconds)} ms"
