"""What a prompt says of the device and of the problem's bounds, as measured by the judge (`ProblemCard`)."""

from kbevolve.archive.formatting import input_words, operation_words, size_words, three_digits, time_words
from kbevolve.archive.records import ProblemCard
from kbevolve.evaluators.analysis.rates import product_times

#: Flags that help to write a kernel. The others show how to deceive the judge.
_HELPFUL_FLAGS = ("launch-bound", "reducible", "dead-code", "in-place")


def device_lines(card: ProblemCard | None) -> list[str]:
    """What kernels share on the device, and its measured rates; nothing for a card of an older version."""
    return [line for line in (_resources(card), _peaks(card)) if line] if card else []


def card_lines(card: ProblemCard) -> list[str]:
    """What an author of a kernel should know about the problem."""
    moved = f" ({time_words(card.memory_ms)} at the measured bandwidth)" if card.memory_ms else ""
    lines = [f"It must read {input_words(card)} and write {size_words(card.output_bytes)}{moved}{_products(card)}."]
    # By the ways just named; the roofline also counts 3 products of bf16, whose rate may be a few percent higher.
    bound = max(card.memory_ms, min(product_times(card).values(), default=card.task_roofline_ms))
    if card.task_roofline_ms:
        limit = "arithmetic" if bound > 1.001 * card.memory_ms else "memory bandwidth"
        lines.append(
            f"So {limit} bounds it, at {time_words(bound)} if each byte moves once and nothing is padded; "
            f"eager PyTorch takes {time_words(card.eager_ms)}."
        )
    return lines + [f"{flag.capitalize()}: {card.flags[flag]}." for flag in _HELPFUL_FLAGS if flag in card.flags]


def _products(card: ProblemCard) -> str:
    if not card.flops:
        return ""
    saved = card.flops - card.required_flops if card.peaks else 0
    less = f", of which {operation_words(saved)} can be saved" if saved else ""
    times = [f"{time_words(time)} in {name}" for name, time in product_times(card).items()]
    peaks = f": at the measured peaks {', '.join(times)}" if times else ""
    return f", and computes {operation_words(card.flops)} in products{less}{peaks}"


def _resources(card: ProblemCard) -> str:
    found, parts = card.resources, []
    if "shared" in found:
        whole = f" of the {_kib(found['SM shared'])} of an SM" if "SM shared" in found else ""
        parts.append(f"a block may have {_kib(found['shared'])}{whole} as shared memory")
    if "registers" in found:
        parts.append(f"a thread 255 of an SM's {found['registers']:,} registers")
    levels = [f"{level} {_kib(size)}" for level, size in found.items() if level.startswith("L")]
    words = "; ".join([", ".join(parts), f"caches: {', '.join(levels)}" if levels else ""]).strip("; ")
    return f"{words[0].upper()}{words[1:]}." if words else ""


def _peaks(card: ProblemCard) -> str:
    rates = dict(card.peaks)
    if not rates:
        return ""
    copy = rates.pop("copy")
    shown = ("fp32", "tf32", "fp16", "bf16", "fp8", "int8") if "tf32" in rates else ("fp32",)
    products = [f"{name.replace('tf', 'TF')} {three_digits(rates[name] / 1e12)}" for name in shown if name in rates]
    return f"Measured: a copy moves {size_words(round(copy))}/s; library products, TFLOP/s: {', '.join(products)}."


def _kib(size: int) -> str:
    return f"{size / 1024:.0f} KiB" if size < 1 << 20 else f"{size / (1 << 20):.0f} MiB"
