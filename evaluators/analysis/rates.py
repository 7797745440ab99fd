"""Effective rates of a time on a problem's card, and its share of the roofline.

Effective rates count the problem's own bytes and operations, not those of the kernel: a kernel that reads its input
twice shows half of the bandwidth that it uses, and that half is what it can gain.
"""

from kbevolve.archive.records import ProblemCard


def bytes_of(card: ProblemCard) -> int:
    """Bytes moved when every input, weight and output is read or written once."""
    return card.input_bytes + card.weight_bytes + card.output_bytes


def gigabytes_per_second(card: ProblemCard | None, time_ms: float) -> float | None:
    """Effective bandwidth; None without a card."""
    return bytes_of(card) / (time_ms / 1e3) / 1e9 if card and bytes_of(card) and time_ms > 0 else None


def teraflops(card: ProblemCard | None, time_ms: float) -> float | None:
    """Effective TFLOP/s of the products; None without a card or where there are none."""
    return card.flops / (time_ms / 1e3) / 1e12 if card and card.flops and time_ms > 0 else None


def roofline_share(card: ProblemCard | None, precision_class: str | None, time_ms: float) -> float | None:
    """The roofline's time over the kernel's, 0 to 1; None where the card has no roofline of that class.

    It is capped at 1: data that stays in the L2 between calls, or unread inputs, can make a kernel faster than that.
    """
    roofline = card.roofline_ms.get(precision_class or "") if card else None
    return min(1.0, roofline / time_ms) if roofline and time_ms > 0 else None


def percent(share: float) -> str:
    """``81 %``; ``under 1 %`` for less."""
    return f"{100 * share:.0f} %" if share >= 0.005 else "under 1 %"
