"""One line on what most likely limits a kernel: the first of several plain rules that its profile meets.

The order is that of the remedies: gaps between launches hide everything else, spills falsify what memory does, and only
a kernel that fills the device is limited by the device. Williams, Waterman and Patterson's roofline (2009) tells the
last two apart.
"""

from collections.abc import Mapping, Sequence

from kbevolve.archive.records import Launch
from kbevolve.evaluators.analysis.rates import percent

#: Device time below this share of a call's time: the device waits for launches.
_BUSY = 0.7
#: Launches a call from which merging them is worth a thought, unless one of them has more than this share.
_MANY_LAUNCHES = 4
_MAIN_SHARE = 0.6
#: A launch below this share of the time is not worth naming its spills.
_NAMED_SHARE = 0.25
#: A roof is near from here: careful kernels reach 0.8 to 0.95 of it, naive ones a tenth.
_NEAR_ROOF = 0.6
#: A unit that is busy for this share of the time, in percent, is taken for the limit (as Nsight Compute does).
_BUSY_UNIT = 60.0
#: Warps below this share of what a multiprocessor holds cannot hide the latency of memory.
_LOW_OCCUPANCY = 0.25
#: Share of libraries from which the candidate's own kernels hardly matter.
_LIBRARY_SHARE = 0.8

#: Names under which `counters` gives what is looked at here.
DRAM, SM, TENSOR, STALL = "DRAM busy", "SM busy", "tensor cores busy", "stalled: "


def bottleneck(
    launches: Sequence[Launch],
    *,
    time_ms: float,
    roofline_share: float | None = None,
    limit: str = "",
    counters: Mapping[str, float] | None = None,
) -> str:
    """What most likely limits a kernel, in one line; "" when nothing is known.

    Args:
        launches: the longest first.
        time_ms: milliseconds of a call.
        roofline_share: the roofline's time over the kernel's.
        limit: "memory", "arithmetic" or "": the side of the roofline that the problem lies on.
        counters: hardware counters of the longest launch, in percent, by the names above.
    """
    return (
        _launching(launches, time_ms)
        or _spilling(launches)
        or _counted(counters or {})
        or _at_the_roof(roofline_share, limit)
        or _many_launches(launches)
        or _libraries(launches)
        or _under_filled(launches)
        or _low_occupancy(launches, roofline_share)
        or _far_from_the_roof(roofline_share, limit)
    )


def _launching(launches: Sequence[Launch], time_ms: float) -> str:
    busy_ms = sum(one.microseconds * one.launches for one in launches) / 1e3
    on_gpu = any(one.registers is not None for one in launches)  # on a CPU nothing is launched
    if not on_gpu or busy_ms >= _BUSY * time_ms:
        return ""
    count = sum(one.launches for one in launches)
    return (
        f"launch-bound: kernels run {1e3 * busy_ms:.3g} of {1e3 * time_ms:.3g} µs in {count:.3g} "
        f"launch{'' if count == 1 else 'es'}; fewer launches, less work in Python, or a CUDA graph"
    )


def _spilling(launches: Sequence[Launch]) -> str:
    for one in launches:
        if one.spilled and one.share >= _NAMED_SHARE and not one.library:
            registers = f" beside {one.registers} registers" if one.registers else ""
            return (
                f"spilling: {one.name} keeps {one.spilled} bytes a thread in local memory{registers}; smaller tiles, "
                "more threads a block, no arrays that are indexed at run time"
            )
    return ""


def _counted(counters: Mapping[str, float]) -> str:
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


def _at_the_roof(share: float | None, limit: str) -> str:
    if share is None or share < _NEAR_ROOF:
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


def _far_from_the_roof(share: float | None, limit: str) -> str:
    if share is None:
        return ""
    meaning = {
        "memory": "scattered access, latency, or more passes over memory than needed",
        "arithmetic": "operands arrive too slowly, latency, or units that are not used",
    }.get(limit, "latency, or more work than needed")
    return f"far from the roofline ({percent(share)}): {meaning}"
