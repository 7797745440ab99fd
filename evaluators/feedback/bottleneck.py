"""One line on what most likely limits a kernel: the first of several simple rules that its profile meets.

The order is that of the remedies: gaps between launches hide everything else, spills add memory traffic of their own,
and only a kernel that fills the device is limited by it. The roofline of Williams, Waterman and Patterson (2009)
separates memory-bound from compute-bound kernels.
"""

from collections.abc import Mapping, Sequence

from kbevolve.archive.records import Launch
from kbevolve.evaluators.analysis.rates import percent

#: Below this share of kernel time in a call's time the device waits for launches.
_BUSY = 0.7
#: From so many launches a call on, fusing them may help, unless one of them has more than this share of the time.
_MANY_LAUNCHES = 4
_MAIN_SHARE = 0.6
#: Spills are reported only for launches with at least this share of the time.
_SPILL_SHARE = 0.25
#: From this share on a kernel is near the roofline: careful kernels reach 0.8 to 0.95, naive ones a tenth.
_NEAR_ROOFLINE = 0.6
#: A unit busy for this share of the time, in percent, counts as the limit (as in Nsight Compute).
_BUSY_UNIT = 60.0
#: Below this occupancy warps cannot hide the latency of memory.
_LOW_OCCUPANCY = 0.25
#: From this share of library time on, the candidate's own kernels hardly matter.
_LIBRARY_SHARE = 0.8

#: Names of the readings of `counters` that are used here.
DRAM, SM, TENSOR, STALL = "DRAM busy", "SM busy", "tensor cores busy", "stalled: "


def bottleneck(
    launches: Sequence[Launch],
    *,
    time_ms: float,
    roofline_share: float | None = None,
    limit: str = "",
    counters: Mapping[str, float] | None = None,
) -> str:
    """The most likely limit of a kernel, in one line; "" when nothing is known.

    Args:
        launches: of one call, the longest first.
        time_ms: milliseconds of a call.
        roofline_share: the roofline's time over the kernel's.
        limit: "memory", "arithmetic" or "": what bounds the problem's roofline.
        counters: hardware counters of the longest launch, in percent, by the names above.
    """
    return (
        _launch_bound(launches, time_ms)
        or _spills(launches)
        or _from_counters(counters or {})
        or _near_roofline(roofline_share, limit)
        or _many_launches(launches)
        or _libraries(launches)
        or _under_filled(launches)
        or _low_occupancy(launches, roofline_share)
        or _far_from_roofline(roofline_share, limit)
    )


def _launch_bound(launches: Sequence[Launch], time_ms: float) -> str:
    busy_ms = sum(one.microseconds * one.launches for one in launches) / 1e3
    on_gpu = any(one.registers is not None for one in launches)  # a CPU has no launches
    if not on_gpu or busy_ms >= _BUSY * time_ms:
        return ""
    count = sum(one.launches for one in launches)
    return (
        f"launch-bound: kernels run {1e3 * busy_ms:.3g} of {1e3 * time_ms:.3g} µs in {count:.3g} "
        f"launch{'' if count == 1 else 'es'}; fewer launches, less work in Python, or a CUDA graph"
    )


def _spills(launches: Sequence[Launch]) -> str:
    for one in launches:
        if one.spilled and one.share >= _SPILL_SHARE and not one.library:
            registers = f" beside {one.registers} registers" if one.registers else ""
            return (
                f"spilling: {one.name} keeps {one.spilled} bytes a thread in local memory{registers}; smaller tiles, "
                "more threads a block, no arrays that are indexed at run time"
            )
    return ""


def _from_counters(counters: Mapping[str, float]) -> str:
    dram, sm, tensor = (counters.get(name) for name in (DRAM, SM, TENSOR))
    if dram is None or sm is None:
        return ""
    if dram >= _BUSY_UNIT and dram >= sm:
        return f"memory-bound: DRAM is busy {dram:.0f} % of the time; move fewer bytes"
    if max(sm, tensor or 0.0) >= _BUSY_UNIT:
        cores = f", tensor cores {tensor:.0f} %" if tensor else ""
        return f"compute-bound: multiprocessors are busy {sm:.0f} % of the time{cores}; cheaper instructions"
    stalls = {name.removeprefix(STALL): share for name, share in counters.items() if name.startswith(STALL)}
    worst = max(stalls, key=lambda name: stalls[name], default="")
    waits = f"; warps wait most for {worst} ({stalls[worst]:.0f} % of stalls)" if worst else ""
    return f"latency-bound: DRAM is busy {dram:.0f} %, multiprocessors {sm:.0f} % of the time{waits}"


def _near_roofline(share: float | None, limit: str) -> str:
    if share is None or share < _NEAR_ROOFLINE:
        return ""
    kind = {"memory": "memory-bound", "arithmetic": "compute-bound"}.get(limit, "at the roofline")
    return f"{kind}: {percent(share)} of the roofline; little is left but to move fewer bytes or do less arithmetic"


def _many_launches(launches: Sequence[Launch]) -> str:
    count = sum(one.launches for one in launches)
    if count < _MANY_LAUNCHES or launches[0].share > _MAIN_SHARE:
        return ""
    return f"many passes: {count:.3g} launches a call, the longest {percent(launches[0].share)} of the time; fuse them"


def _libraries(launches: Sequence[Launch]) -> str:
    share = sum(one.share for one in launches if one.library)
    if share < _LIBRARY_SHARE:
        return ""
    return f"library-bound: {percent(share)} of the time is the libraries' ({launches[0].name})"


def _under_filled(launches: Sequence[Launch]) -> str:
    blocks = launches[0].blocks_per_sm if launches else None
    if not blocks or blocks >= 1:
        return ""
    return f"too few blocks: {launches[0].name} has {blocks:.2g} for each multiprocessor; split the work further"


def _low_occupancy(launches: Sequence[Launch], share: float | None) -> str:
    main = launches[0] if launches else None
    if main is None or main.occupancy is None or main.occupancy >= _LOW_OCCUPANCY:
        return ""
    why = [f"{main.registers} registers a thread"] if main.registers else []
    why += [f"{main.shared_memory / 1024:.3g} KiB of shared memory a block"] if main.shared_memory else []
    facts = f"{percent(main.occupancy)} occupancy" + (f" ({', '.join(why)})" if why else "")
    if share is not None:
        facts += f", {percent(share)} of the roofline"
    return f"latency-bound: {facts}; more loads in flight, or more warps"


def _far_from_roofline(share: float | None, limit: str) -> str:
    if share is None:
        return ""
    meaning = {
        "memory": "scattered access, latency, or more passes over memory than needed",
        "arithmetic": "operands arrive too slowly, latency, or units that are not used",
    }.get(limit, "latency, or more work than needed")
    return f"far from the roofline ({percent(share)}): {meaning}"
