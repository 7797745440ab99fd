"""The feedback on a kernel for a proposer: a message of a few lines, in one form for every verdict.

It contains what any owner of the device could measure: how far the kernel got, the first error, where the output is
wrong, by how much, what was accepted and on which kind of inputs, its speed against its parent, eager PyTorch and the
roofline, and where its time goes. It never contains a seed, or how a forbidden trick was detected.
"""

from kbevolve.archive.records import Evaluation, Launch, ProblemCard, Profile, Verdict
from kbevolve.evaluators.analysis.rates import (
    duration,
    gigabytes_per_second,
    percent,
    roofline_share,
    teraflops,
    three_digits,
)
from kbevolve.evaluators.feedback.launching import launching_line
from kbevolve.evaluators.feedback.passes import kernel_ms, product_launch

#: How the message of a kernel begins that failed because of rounding.
INACCURATE = "not accurate enough"
#: Lines and characters of a failure's message: the first error is near the top.
MESSAGE_LINES = 20
MESSAGE_LENGTH = 2000
#: Below this share of the call's time in kernels the rest is named.
_GAPS = 0.95
#: Units of counters that are not in percent.
_UNITS = (" GB/s", " MHz")
#: Launches shown; the others take a few percent of the time.
SHOWN_LAUNCHES = 5

_STAGES = {
    Verdict.REFUSED: "It was refused.",
    Verdict.BUILD_FAILED: "It did not get as far as being run.",
    Verdict.CRASHED: "It compiled, and then failed when it was called.",
    Verdict.TIMED_OUT: "It took too long.",
    Verdict.WRONG: "It ran, and its result is wrong.",
}
_INACCURATE_STAGE = "It ran, and its result is right but for rounding, which is more than accepted."


def feedback(evaluation: Evaluation, parent: Evaluation | None = None, card: ProblemCard | None = None) -> str:
    """The message: at most some 25 lines, without a newline at the end.

    `parent` is the evaluation of its parent, if that was correct. Without the problem's card the roofline is left out.
    """
    if evaluation.verdict is not Verdict.CORRECT:
        stage = _INACCURATE_STAGE if is_inaccurate(evaluation) else _STAGES[evaluation.verdict]
        return "\n".join(filter(None, (stage, clipped(evaluation.message))))
    return "\n".join([speed_line(evaluation, parent), *performance(evaluation, card)])


def is_inaccurate(evaluation: Evaluation) -> bool:
    """Whether a kernel failed because of rounding, and not of a mistake."""
    return evaluation.verdict is Verdict.WRONG and evaluation.message.startswith(INACCURATE)


def speed_line(evaluation: Evaluation, parent: Evaluation | None = None) -> str:
    """The speed of a correct kernel, e.g. ``1.83 times as fast as eager PyTorch, 95 % interval 1.80 to 1.86``."""
    timing = evaluation.timing
    if timing.speedup is None:
        return "correct, not timed"
    words = f"{timing.speedup:.2f} times as fast as eager PyTorch"
    if timing.speedup_low is not None and timing.speedup_high is not None:
        words += f", 95 % interval {timing.speedup_low:.2f} to {timing.speedup_high:.2f}"
    if timing.speedup_best is not None and timing.best_baseline not in (None, "eager"):
        words += f"; {timing.speedup_best:.2f} times as fast as {timing.best_baseline}"
    if parent is not None and parent.timing.speedup:
        # Both speed-ups are against the reference of their own rounds: times of different hours are not comparable.
        words += f"; {timing.speedup / parent.timing.speedup:.2f} times its parent's speed"
    if timing.time_ms is not None:
        words += f"; {timing.time_ms:.4g} ms a call"
    return words


def performance(evaluation: Evaluation, card: ProblemCard | None = None) -> list[str]:
    """Lines on a correct kernel's share of the roofline, its launches and what they cost, counters and bottleneck."""
    profile = evaluation.profile or Profile()
    product, time_ms = product_launch(profile.launches, card), evaluation.timing.time_ms
    lines = [_roofline(evaluation, card), *_launches(profile, time_ms), str(product or ""), _counters(profile)]
    lines.append(launching_line(profile.launches, time_ms or 0.0, profile.launch_cost))
    if profile.bottleneck:
        lines.append(f"Bottleneck (a guess): {profile.bottleneck}.")
    return [line for line in lines if line]


def launch_facts(launch: Launch) -> str:
    """``1.24 ms in 3 launches of 412 µs, 168 registers, 96 bytes spilled a thread, 25 % occupancy``."""
    facts = [duration(launch.microseconds * launch.launches / 1e3)]
    if launch.launches != 1:
        facts[0] += f" in {launch.launches:.3g} launches of {duration(launch.microseconds / 1e3)}"
    if launch.blocks is not None and launch.threads is not None:
        facts.append(f"{launch.blocks:,} blocks of {launch.threads} threads")
    if launch.registers is not None:
        facts.append(f"{launch.registers} registers")
    if launch.spilled:
        facts.append(f"{launch.spilled} bytes spilled a thread")
    if launch.shared_memory:
        facts.append(f"{launch.shared_memory / 1024:.3g} KiB shared memory")
    if launch.blocks_per_sm is not None:
        facts.append(f"{three_digits(launch.blocks_per_sm)} blocks in all for each multiprocessor")
    if launch.occupancy is not None:
        facts.append(f"{percent(launch.occupancy)} occupancy")
    return ", ".join(facts) + (" (library)" if launch.library else "")


def counter_words(name: str, value: float) -> str:
    """``DRAM busy 81 %``, ``registers a thread 168`` or ``DRAM 2130 GB/s``: percent, unless the name says otherwise."""
    unit = next((unit for unit in _UNITS if name.endswith(unit)), "")
    return (
        f"{name.removesuffix(unit)} {value:.0f}{unit}"
        if unit or name.startswith("registers")
        else f"{name} {value:.0f} %"
    )


def clipped(message: str) -> str:
    """The first whole lines of a message, up to `MESSAGE_LINES` and `MESSAGE_LENGTH`."""
    text = message.strip()
    kept = "\n".join(text.split("\n")[:MESSAGE_LINES])
    if len(kept) > MESSAGE_LENGTH:
        kept = kept[:MESSAGE_LENGTH].rpartition("\n")[0] or kept[:MESSAGE_LENGTH]
    return kept if kept == text else f"{kept}\n…"


def _roofline(evaluation: Evaluation, card: ProblemCard | None) -> str:
    time_ms, profile = evaluation.timing.time_ms, evaluation.profile or Profile()
    if not time_ms:
        return ""
    share = profile.roofline_share or roofline_share(card, evaluation.accuracy.precision_class, time_ms)
    bandwidth = profile.gigabytes_per_second or gigabytes_per_second(card, time_ms)
    arithmetic = profile.teraflops or teraflops(card, time_ms)
    facts = [f"{percent(share)} of the roofline at {evaluation.accuracy.precision_class}"] if share else []
    if bandwidth:
        copy = card.peaks.get("copy") if card else None
        of_copy = f" ({percent(1e9 * bandwidth / copy)} of a copy's)" if copy else ""
        facts.append(f"{three_digits(bandwidth)} GB/s{of_copy}")
    facts += [f"{three_digits(arithmetic)} TFLOP/s"] if arithmetic else []
    return f"Effective: {', '.join(facts)}." if facts else ""


def _launches(profile: Profile, time_ms: float | None) -> list[str]:
    if not profile.launches:
        return []
    known = kernel_ms(profile.launches)
    heading = "Where the time of a call goes"
    if profile.profiled_ms:
        heading += (
            f" (profiled calls took {duration(profile.profiled_ms)}, at other clocks or with kernels that overlap; "
            f"times are scaled to {duration(known)})"
        )
    elif time_ms and known < _GAPS * time_ms:
        heading += f" (kernels run {duration(known)} of its {duration(time_ms)})"
    lines = [f"- {percent(one.share)} {one.name}: {launch_facts(one)}" for one in profile.launches[:SHOWN_LAUNCHES]]
    rest = sum(one.share for one in profile.launches[SHOWN_LAUNCHES:])
    if rest >= 0.01:
        lines.append(f"- {percent(rest)} {len(profile.launches) - SHOWN_LAUNCHES} others")
    return [f"{heading}:", *lines]


def _counters(profile: Profile) -> str:
    readings = [counter_words(*one) for one in profile.counters.items()]
    return f"Counters of the longest kernel: {', '.join(readings)}." if readings else ""
