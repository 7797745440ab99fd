"""What a time amounts to, set against a problem's card: effective rates, and the share of the roofline.

Effective means the problem's own bytes and operations, not what the kernel really moved or did: a kernel that reads an
input twice shows half of the bandwidth that it uses, and that is what it can win.
"""

from kbevolve.archive.records import ProblemCard


def bytes_of(card: ProblemCard) -> int:
    """Bytes that cross the memory bus when everything is read and written once."""
    return card.input_bytes + card.weight_bytes + card.output_bytes


def gigabytes_per_second(card: ProblemCard | None, time_ms: float) -> float | None:
    """Effective bandwidth; None without a card."""
    return bytes_of(card) / (time_ms / 1e3) / 1e9 if card and bytes_of(card) and time_ms > 0 else None


def teraflops(card: ProblemCard | None, time_ms: float) -> float | None:
    """Effective TFLOP/s of the products; None without a card or where there are none."""
    return card.flops / (time_ms / 1e3) / 1e12 if card and card.flops and time_ms > 0 else None


def roofline_share(card: ProblemCard | None, precision_class: str | None, time_ms: float) -> float | None:
    """The roofline's time over the kernel's, 0 to 1; None where there is no roofline of that class.

    What stays in the L2 between calls, or an input that need not be read, can take a kernel beyond the roofline.
    """
    roofline = card.roofline_ms.get(precision_class or "") if card else None
    return min(1.0, roofline / time_ms) if roofline and time_ms > 0 else None


def share_words(share: float) -> str:
    """``81 %``; ``under 1 %`` for less."""
    return f"{100 * share:.0f} %" if share >= 0.005 else "under 1 %"
