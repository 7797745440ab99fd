"""One line on what most likely limits a kernel: the first of several simple rules that its profile meets.

The order is that of the remedies: gaps between launches hide everything else, spills add memory traffic of their own,
and only a kernel that fills the device is limited by it. The roofline of Williams, Waterman and Patterson (2009)
separates memory-bound from compute-bound kernels.
"""

from collections.abc import Iterator, Mapping, Sequence

from kbevolve.archive.records import Launch, LaunchCost, ProblemCard
from kbevolve.evaluators.analysis.rates import duration, percent
from kbevolve.evaluators.feedback.launching import launches_limit, launching_words
from kbevolve.evaluators.feedback.passes import kernel_ms, passes_words, product_launch

#: Below this share of kernel time in a call's time the device waits for launches.
_BUSY = 0.7
#: From so many launches a call on, fusing them may help, unless one of them has more than this share of the time.
_MANY_LAUNCHES = 4
_MAIN_SHARE = 0.6
#: Spills are reported only for launches with at least this share of the time, and from so many bytes a thread on: some
#: registers that are stored outside of the loop cost nothing.
_SPILL_SHARE = 0.25
_MANY_SPILLED = 64
#: From this share on a kernel is near the roofline: careful kernels reach 0.8 to 0.95, naive ones a tenth. From the
#: second on little is left.
_NEAR_ROOFLINE = 0.6
_AT_ROOFLINE = 0.9
#: From this share of the fastest way to compute all products on, a launch is bound by arithmetic.
_FULL_RATE = 0.75
#: A unit busy for this share of the time, in percent, counts as the limit (as in Nsight Compute).
_BUSY_UNIT = 60.0
#: Below this occupancy warps cannot hide the latency of memory.
_LOW_OCCUPANCY = 0.25
#: From this share of library time on, the candidate's own kernels hardly matter.
_LIBRARY_SHARE = 0.8

_LAUNCH_BOUND = "launch-bound"
#: Names of the readings of `counters` that are used here.
DRAM, SM, TENSOR, STALL = "DRAM busy", "SM busy", "tensor cores busy", "stalled: "


def bottleneck(
    launches: Sequence[Launch],
    *,
    time_ms: float,
    roofline_share: float | None = None,
    limit: str = "",
    counters: Mapping[str, float] | None = None,
    card: ProblemCard | None = None,
    launch_cost: LaunchCost | None = None,
) -> str:
    """The most likely limit of a kernel, in one line, and passes and launches that could go; "" when nothing is known.

    The launches are those of one call, the longest first; the counters are of the longest, in percent, by the names
    above. `limit` is what bounds the problem's roofline: "memory", "arithmetic" or "". With the problem's card, the
    launch that computes the products is compared with their rate.
    """
    found = next(_findings(launches, time_ms, roofline_share, limit, counters or {}, card), "")
    lines = [found, passes_words(launches)]
    if not found.startswith(_LAUNCH_BOUND):
        first = launches_limit(launches, time_ms, launch_cost)
        lines.insert(0 if first else len(lines), launching_words(launches, time_ms, launch_cost))
    return "; ".join(filter(None, lines))


def _findings(
    launches: Sequence[Launch],
    time_ms: float,
    share: float | None,
    limit: str,
    counters: Mapping[str, float],
    card: ProblemCard | None,
) -> Iterator[str]:
    """The rules that the profile meets, the most important first."""
    count = sum(one.launches for one in launches)
    busy_ms = kernel_ms(launches)
    if busy_ms < _BUSY * time_ms and any(one.registers is not None for one in launches):  # a CPU has no launches
        yield (
            f"{_LAUNCH_BOUND}: kernels run {duration(busy_ms)} of {duration(time_ms)} in {count:.3g} "
            f"launch{'' if count == 1 else 'es'}; fewer launches, less work in Python, or a CUDA graph"
        )
    near = share is not None and share >= _NEAR_ROOFLINE
    for one in launches:
        if one.spilled and one.spilled >= _MANY_SPILLED and not near and one.share >= _SPILL_SHARE and not one.library:
            registers = f" beside {one.registers} registers" if one.registers else ""
            yield (
                f"spilling: {one.name} keeps {one.spilled} bytes a thread in local memory{registers}; smaller tiles, "
                "more threads a block, no arrays that are indexed at run time"
            )
    yield from _busy_units(counters)
    product = product_launch(launches, card)
    least, most = (find(product.shares.values()) for find in (min, max)) if product else (0.0, 0.0)
    if product and least >= _FULL_RATE and product.launch.share < _AT_ROOFLINE:
        yield (
            f"compute-bound: {product.launch.name} takes {percent(product.launch.share)} of the time, and computes at "
            f"{percent(least)} of the measured peak in {product.fastest}"
        )
    if share is not None and near:
        kind = {"memory": "memory-bound", "arithmetic": "compute-bound"}.get(limit, "at the roofline")
        left = (
            "little is left but to move fewer bytes or do less arithmetic"
            if share >= _AT_ROOFLINE
            else f"at most {1 / share:.2f} times faster without fewer bytes or less arithmetic"
        )
        yield f"{kind}: {percent(share)} of the roofline; {left}"
    if product and most >= _FULL_RATE > least:
        yield (
            f"compute-bound: {product.launch.name} computes at {percent(most)} of the measured peak in "
            f"{product.slowest}, if it uses that; {product.fastest} has {most / least:.2g} times the peak"
        )
    if launches:
        yield from _launch_shapes(launches, count, share)
    if share is not None:
        meaning = {
            "memory": "scattered access, latency, or more passes over memory than needed",
            "arithmetic": "operands arrive too slowly, latency, or units or formats that are not the fastest",
        }.get(limit, "latency, or more work than needed")
        yield f"far from the roofline ({percent(share)}): {meaning}"


def _busy_units(counters: Mapping[str, float]) -> Iterator[str]:
    dram, sm, tensor = (counters.get(name) for name in (DRAM, SM, TENSOR))
    if dram is None or sm is None:
        return
    if dram >= _BUSY_UNIT and dram >= sm:
        yield f"memory-bound: DRAM is busy {dram:.0f} % of the time; move fewer bytes"
    if max(sm, tensor or 0.0) >= _BUSY_UNIT:
        cores = f", tensor cores {tensor:.0f} %" if tensor else ""
        yield f"compute-bound: multiprocessors are busy {sm:.0f} % of the time{cores}; cheaper instructions"
    stalls = {name.removeprefix(STALL): share for name, share in counters.items() if name.startswith(STALL)}
    worst = max(stalls, key=lambda name: stalls[name], default="")
    waits = f"; warps wait most for {worst} ({stalls[worst]:.0f} % of stalls)" if worst else ""
    yield f"latency-bound: DRAM is busy {dram:.0f} %, multiprocessors {sm:.0f} % of the time{waits}"


def _launch_shapes(launches: Sequence[Launch], count: float, share: float | None) -> Iterator[str]:
    main = launches[0]
    if count >= _MANY_LAUNCHES and main.share <= _MAIN_SHARE:
        yield f"many passes: {count:.3g} launches a call, the longest {percent(main.share)} of the time; fuse them"
    library = sum(one.share for one in launches if one.library)
    if library >= _LIBRARY_SHARE:
        yield f"library-bound: {percent(library)} of the time is the libraries' ({main.name})"
    blocks = main.blocks_per_sm
    if blocks and blocks < 1:
        yield f"too few blocks: {main.name} has {blocks:.2g} for each multiprocessor; split the work further"
    if main.occupancy is not None and main.occupancy < _LOW_OCCUPANCY:
        why = [f"{main.registers} registers a thread"] if main.registers else []
        why += [f"{main.shared_memory / 1024:.3g} KiB of shared memory a block"] if main.shared_memory else []
        facts = f"{percent(main.occupancy)} occupancy" + (f" ({', '.join(why)})" if why else "")
        if share is not None:
            facts += f", {percent(share)} of the roofline"
        yield f"latency-bound: {facts}; more loads in flight, or more warps"
