"""Figures of one run beside its best so far: speedups, niches, roofline, time by phase, lineage."""

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kbevolve.archive.formatting import as_times, counted, percent_words, three_digits, time_words
from kbevolve.archive.outlines import OutlineEntry
from kbevolve.archive.records import ProblemCard, Verdict
from kbevolve.archive.report.lineage_layout import LineageLayout
from kbevolve.archive.report.style import GREY, INK, MANY, PALETTE, caption, new_figure
from kbevolve.archive.throughput import Throughput

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.collections import PathCollection
    from matplotlib.figure import Figure

#: Inches.
_WIDTH = 8.4
#: Matplotlib's map of colours from dark to light that reads the same for every colour vision (Nuñez et al., 2018).
_COLOURS = "cividis"


def speedup_distribution(entries: Iterable[OutlineEntry], problem: str) -> "Figure":
    """How many kernels reached which speedup, in equal steps of its logarithm."""
    from matplotlib.ticker import MaxNLocator

    speedups = [one.speedup for one in entries if one.speedup and one.verdict is Verdict.CORRECT]
    figure = new_figure(_WIDTH)
    axes = figure.add_subplot()
    if speedups:
        low, high = math.log(min(*speedups, 0.9)), math.log(max(*speedups, 1.1))
        edges = [math.exp(low + (high - low) * step / 30) for step in range(31)]
        axes.hist(speedups, bins=edges, color=PALETTE[0], edgecolor="white", linewidth=0.6)
        axes.set_xscale("log")
        _plain_numbers(axes.xaxis, "×")
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.axvline(1.0, color=GREY, linewidth=0.8, linestyle=(0, (4, 3)), label="eager")
        axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2)
    axes.set_xlabel("speedup over eager")
    axes.set_ylabel("correct kernels")
    faster = sum(speedup > 1 for speedup in speedups)
    caption(
        figure, f"{problem}: {faster} of {len(speedups)} correct kernels are faster than eager", "first evaluations"
    )
    return figure


def niche_map(elites: Mapping[str, OutlineEntry], levels: Mapping[str, Sequence[str]], problem: str) -> "Figure":
    """The best kernel of each niche: memory by compute, and within each of these decomposition by launches."""
    from matplotlib.colors import LogNorm

    figure = new_figure(_WIDTH)
    axes = figure.add_subplot()
    axes.set_aspect("equal")
    for block in range(16):
        axes.fill([block % 4 * 4.6 + corner for corner in (0, 4, 4, 0)],
                  [block // 4 * 4.6 + corner for corner in (0, 0, 4, 4)], color="#f3f4f4")  # fmt: skip
    places = [(_niche_place(niche), one.speedup) for niche, one in elites.items() if one.speedup]
    known = [(place, speedup) for place, speedup in places if place is not None]
    if known:
        xs, ys = zip(*(place for place, _ in known), strict=True)
        speedups = [speedup for _, speedup in known]
        norm = LogNorm(min(*speedups, 0.99), max(*speedups, 1.01))
        marks = axes.scatter(xs, ys, c=speedups, s=90, marker="s", cmap=_COLOURS, norm=norm)
        bar = figure.colorbar(
            marks, ax=axes, shrink=0.7, label="speedup over eager", format=lambda value, _: f"{value:g}×"
        )
        bar.minorformatter = bar.formatter
    middles = [4.6 * index + 2 for index in range(4)]
    axes.set_xticks(middles, [textwrap.fill(words, 11) for words in levels["compute"]])
    axes.set_yticks(middles, levels["memory"])
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_xlabel("compute (within a block: more launches to the right)")
    axes.set_ylabel("memory (within a block: finer decomposition upwards)")
    caption(figure, f"{problem}: {len(known)} of 256 niches have a kernel", "the best kernel that ever entered each")
    return figure


def _niche_place(niche: str) -> tuple[float, float] | None:
    """Where m2c1d0l3 lies; None for other keys."""
    if len(niche) != 8 or niche[::2] != "mcdl" or any(digit not in "0123" for digit in niche[1::2]):
        return None
    memory, compute, decomposition, launches = map(int, niche[1::2])
    return compute * 4.6 + launches + 0.5, memory * 4.6 + decomposition + 0.5


def roofline(
    entries: Iterable[OutlineEntry], card: ProblemCard, problem: str, published: float | None = None
) -> "Figure":
    """Operations a second over operations a byte (Williams, Waterman, Patterson 2009); bytes a second without any.

    `published` is the share of the roofline that the best kernel reaches.
    """
    timed = [one for one in entries if one.time_ms and one.verdict is Verdict.CORRECT]
    moved = card.input_bytes + card.weight_bytes + card.output_bytes
    flops = card.required_flops or card.flops
    figure = new_figure(_WIDTH)
    axes = figure.add_subplot()
    bandwidth = card.peaks.get("copy") or (1e3 * moved / card.memory_ms if card.memory_ms else 0.0)
    axes.set_yscale("log")
    if flops and moved and bandwidth:
        intensity = flops / moved
        _roofs(axes, card, bandwidth, intensity)
        rates = [flops / one.time_ms * 1e-9 for one in timed if one.time_ms]
        axes.scatter([intensity] * len(rates), rates, s=26, alpha=0.5, color=PALETTE[0], rasterized=len(rates) > MANY)
        axes.set_xlabel("operations for each byte of inputs, weights and outputs")
        axes.set_ylabel("TFLOP/s")
        axes.set_xscale("log")
        _plain_numbers(axes.xaxis)
    else:
        rates = [moved / one.time_ms * 1e-6 for one in timed if one.time_ms]
        counts = range(1, len(rates) + 1)
        axes.scatter(counts, rates, s=16, alpha=0.6, color=PALETTE[0], rasterized=len(rates) > MANY)
        if bandwidth:
            axes.axhline(
                bandwidth / 1e9, color=INK, linewidth=1.4, label=f"copy rate, {three_digits(bandwidth / 1e9)} GB/s"
            )
            axes.legend(frameon=False, loc="lower right")
        axes.set_xlabel("correct kernels, in order of creation")
        axes.set_ylabel("effective GB/s")
    _plain_numbers(axes.yaxis)
    bound = card.task_roofline_ms
    share = f"the best kernel reaches {percent_words(published)} of the roofline" if published else ""
    details = f"roofline {time_words(bound)}, bound by {card.bound_by}" if bound else "no roofline was measured"
    found = counted(len(timed), "correct kernel") if timed else "no correct kernel yet"
    caption(figure, f"{problem}: {share or found}", details)
    return figure


def _roofs(axes: "Axes", card: ProblemCard, bandwidth: float, intensity: float) -> None:
    """A line for each rate of the device, bent where memory bounds it; older cards have the copy rate alone."""
    peaks = {name: peak for name, peak in card.peaks.items() if name != "copy"}
    for index, (name, peak) in enumerate(sorted(peaks.items(), key=lambda item: -item[1])):
        bend = peak / bandwidth
        xs = [min(intensity, bend) / 8, bend, max(intensity, bend) * 8]
        ys = [bandwidth * xs[0] / 1e12, peak / 1e12, peak / 1e12]
        words = f"{name}, {three_digits(peak / 1e12)} TFLOP/s"
        axes.plot(xs, ys, color=PALETTE[index % len(PALETTE)], linewidth=1.5, label=words)
    if not peaks:
        xs = [intensity / 8, intensity * 8]
        axes.plot(xs, [bandwidth * x / 1e12 for x in xs], color=INK, linewidth=1.5, label="memory")
    axes.legend(frameon=False, loc="lower right")


def phase_times(throughput: Throughput, problem: str) -> "Figure":
    """Seconds that the evaluations of a run spent in each phase."""
    figure = new_figure(_WIDTH)
    axes = figure.add_subplot()
    phases = [phase for phase in reversed(throughput.phases) if phase.share >= 0.001]
    bars = axes.barh([phase.name for phase in phases], [phase.total for phase in phases], color=PALETTE[0], height=0.6)
    axes.bar_label(
        bars,
        [f"{three_digits(phase.total)} s, {percent_words(phase.share)}" for phase in phases],
        padding=4,
        fontsize=8.5,
    )
    axes.margins(x=0.16)
    axes.set_xlabel("seconds, of all evaluations together")
    axes.tick_params(axis="y", length=0)
    rate = throughput.children_per_hour
    found = f"{three_digits(rate)} kernels judged an hour" if rate else "no time was recorded"
    caption(figure, f"{problem}: {found}", f"{throughput.judged} kernels judged in this run")
    return figure


def lineage_tree(layout: LineageLayout, line: Sequence[str], problem: str, published: float | None = None) -> "Figure":
    """Every kernel by generation and island, coloured by speedup at its first evaluation.

    `line` are the kernels of the best one's line, and `published` is the speedup of the best.
    """
    from matplotlib.collections import LineCollection
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import MaxNLocator

    figure = new_figure(10.4)
    axes = figure.add_subplot()
    main, many = set(line), len(layout.nodes) > MANY
    for first, height in layout.lanes.values():
        axes.axhspan(first - 0.45, first + height - 0.55, color="#f3f4f4", linewidth=0)

    def draw(pairs: Iterable[tuple[str, str]], **look: Any) -> None:
        segments = [(layout.places[parent], layout.places[child]) for parent, child in pairs]
        axes.add_collection(LineCollection(segments, rasterized=many, **look))

    draw(layout.crossings, colors=GREY, linewidths=0.4, alpha=0.3)
    draw((pair for pair in layout.edges if not main.issuperset(pair)), colors=GREY, linewidths=0.6, alpha=0.5)
    moved = [(layout.places[kernel], to) for kernel, to in layout.migrations]
    axes.add_collection(
        LineCollection(moved, colors=PALETTE[1], linewidths=0.9, linestyles="dashed", label="migration")
    )
    draw(
        (pair for pair in layout.edges if main.issuperset(pair)),
        colors=PALETTE[5],
        linewidths=2,
        label="line of the best",
    )
    failed = [layout.places[name] for name, one in layout.nodes.items() if not one.speedup]
    correct = [(layout.places[name], one.speedup) for name, one in layout.nodes.items() if one.speedup]
    if failed:
        xs, ys = zip(*failed, strict=True)
        axes.scatter(xs, ys, s=9, marker="x", color=GREY, linewidths=0.7, label="failed", rasterized=many, zorder=3)
    if correct:
        xs, ys = zip(*(place for place, _ in correct), strict=True)
        speedups = [speedup for _, speedup in correct]
        norm = LogNorm(min(*speedups, 0.99), max(*speedups, 1.01))
        marks = axes.scatter(xs, ys, c=speedups, s=16, cmap=_COLOURS, norm=norm, rasterized=many, zorder=4)
        _colour_bar(figure, axes, marks)
    axes.set_yticks(
        [first + (height - 1) / 2 for first, height in layout.lanes.values()], [f"island {one}" for one in layout.lanes]
    )
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("generations with a kernel")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, edgecolor="none", fontsize=8.5)
    finding = counted(len(layout.nodes), "kernel") + (f", the best at {as_times(published)}" if published else "")
    caption(figure, f"{problem}: {finding}", counted(len(layout.lanes), "island"))
    return figure


def _plain_numbers(axis: "Axis", unit: str = "") -> None:
    """A logarithmic axis with 1, 2, 5, 10, …"""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}{unit}"))


def _colour_bar(figure: "Figure", axes: "Axes", marks: "PathCollection") -> None:
    bar = figure.colorbar(marks, ax=axes, shrink=0.8, label="speedup over eager")
    _plain_numbers(bar.ax.yaxis, "×")
