"""Reads the report of a worker's profiler and relates it to the problem's card.

The worker is not trusted: every field is checked for type and range, and a wrong one is left out. A profile informs
people and proposers; no verdict depends on it.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kbevolve.archive.records import Launch, LaunchCost, ProblemCard, Profile
from kbevolve.evaluators.analysis.rates import bytes_of, gigabytes_per_second, roofline_share, teraflops
from kbevolve.evaluators.analysis.roofline import Roofline
from kbevolve.evaluators.feedback.bottleneck import bottleneck
from kbevolve.evaluators.feedback.passes import kernel_ms

#: Entries kept, the longest first, and characters of a name, for a screen and a prompt.
MOST_LAUNCHES = 12
MOST_NAME = 80

#: Names of kernels and operations of PyTorch and the vendor's libraries, in the profiler's spelling.
LIBRARY = re.compile(
    r"\b(?:at|aten|c10|cub|thrust|cutlass|cublas\w*|cudnn\w*|cufft|mkldnn|onednn|torch|prims)::"
    r"|cublas|cudnn|cutlass|cufft|flash_fwd|fmha|nvjet|splitKreduce|gemv[a-zN]*_kernel|implicit_convolve|winograd"
    r"|\b(?:ampere|volta|turing|hopper|maxwell|sm\d{2,3})_\w*(?:gemm|conv|dgrad|wgrad|fprop|xmma|cudnn)"
    r"|^Memcpy|^Memset",
    re.IGNORECASE,
)

#: Largest plausible values, at or above the limits of every device.
_MOST_REGISTERS = 1024
_MOST_BYTES = 1 << 24
_MOST_MICROSECONDS = 1e10
_MOST_COUNT = 1e7
_MOST_BLOCKS = 1 << 62
#: From so many times the call's own time on, the profiled times are scaled; less is noise.
_LONGER = 1.05


def read_profile(
    reported: Any,
    *,
    time_ms: float,
    card: ProblemCard | None = None,
    precision_class: str | None = None,
    roofline: Roofline | None = None,
    launch_cost: LaunchCost | None = None,
) -> Profile:
    """The profile in a worker's reply (`worker.profiling.profile`); without the problem's card there are no rates.

    `time_ms` is a call as the judge timed it; the profiler lengthens its own. The launches are counted here.
    """
    everything = read_launches(reported)
    launches, profiled_ms = calibrated(everything[:MOST_LAUNCHES], time_ms)
    if launch_cost is not None:
        launch_cost = replace(launch_cost, launches=sum(one.launches for one in everything) or None)
    share = roofline_share(card, precision_class, time_ms)
    limit = limit_of(card, precision_class, roofline)
    return Profile(
        launches=launches,
        profiled_ms=profiled_ms,
        gigabytes_per_second=gigabytes_per_second(card, time_ms),
        teraflops=teraflops(card, time_ms),
        roofline_share=share,
        bottleneck=bottleneck(
            launches, time_ms=time_ms, roofline_share=share, limit=limit, card=card, launch_cost=launch_cost
        ),
        launch_cost=launch_cost,
    )


def calibrated(launches: tuple[Launch, ...], time_ms: float) -> tuple[tuple[Launch, ...], float | None]:
    """The launches with times whose sum is at most the call's, and their sum in milliseconds where it was more.

    The profiler calls the kernel several times in a row, maybe at lower clocks, and adds up kernels that overlap.
    """
    profiled_ms = kernel_ms(launches)
    if profiled_ms <= _LONGER * time_ms:
        return launches, None
    scale = time_ms / profiled_ms
    return tuple(replace(one, microseconds=scale * one.microseconds) for one in launches), profiled_ms


def with_counters(profile: Profile, readings: Mapping[str, float], *, time_ms: float) -> Profile:
    """The profile with readings of `counters`, which show the bottleneck better than times do."""
    line = bottleneck(
        profile.launches,
        time_ms=time_ms,
        roofline_share=profile.roofline_share,
        counters=readings,
        launch_cost=profile.launch_cost,
    )
    return replace(profile, counters=dict(readings), bottleneck=line)


def read_launches(reported: Any) -> tuple[Launch, ...]:
    """The valid entries, the longest first."""
    entries = [entry for entry in reported[:1000] if isinstance(entry, dict)] if isinstance(reported, list) else []
    timed = []
    for entry in entries:
        microseconds = _number(entry.get("microseconds"), _MOST_MICROSECONDS)
        launches = _number(entry.get("launches"), _MOST_COUNT)
        if microseconds and launches and isinstance(entry.get("name"), str):
            timed.append((microseconds, launches, entry))
    total = sum(microseconds for microseconds, _, _ in timed)
    timed.sort(key=lambda one: -one[0])
    return tuple(
        Launch(
            name=shortened(entry["name"]),
            share=microseconds / total,
            microseconds=microseconds / launches,
            launches=launches,
            registers=_integer(entry.get("registers"), _MOST_REGISTERS),
            spilled=_integer(entry.get("spilled"), _MOST_BYTES),
            shared_memory=_integer(entry.get("shared_memory"), _MOST_BYTES),
            occupancy=_number(entry.get("occupancy"), 1.0),
            blocks_per_sm=_number(entry.get("blocks_per_sm"), _MOST_COUNT),
            blocks=_integer(entry.get("blocks"), _MOST_BLOCKS),
            threads=_integer(entry.get("threads"), _MOST_REGISTERS),
            library=LIBRARY.search(entry["name"][:1000]) is not None,
        )
        for microseconds, launches, entry in timed
    )


def shortened(name: str) -> str:
    """``void at::native::sum<float, 4>(float*, int)`` as ``at::native::sum``."""
    name = "".join(character for character in name[:1000] if character.isprintable())
    name = name.replace("(anonymous namespace)::", "").removeprefix("void ")
    if name.startswith(("Memcpy", "Memset")):  # the brackets name the two memories
        return name[:MOST_NAME]
    kept, depth = [], 0
    for character in name:
        depth += character in "<("
        if not depth:
            kept.append(character)
        depth -= character in ">)" and depth > 0
    short = " ".join("".join(kept).split()) or name
    return short if len(short) <= MOST_NAME else f"{short[: MOST_NAME - 1]}…"


def limit_of(card: ProblemCard | None, precision_class: str | None, roofline: Roofline | None) -> str:
    """What takes longer at full rate: "memory" for the bytes, "arithmetic" for the operations, "" if unknown."""
    if card is None or precision_class is None or roofline is None:
        return ""
    moving = bytes_of(card) / roofline.bytes_per_second
    return "arithmetic" if card.flops / roofline.peak(precision_class) > moving else "memory"


def _number(value: Any, most: float) -> float | None:
    # False for NaN, too.
    valid = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most
    return float(value) if valid else None


def _integer(value: Any, most: int) -> int | None:
    return value if isinstance(value, int) and _number(value, most) is not None else None
