"""The figure of a comparison: best so far of each strategy by evaluations, mean over seeds with interval."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbevolve.archive.formatting import as_times, counted
from kbevolve.archive.report.comparison import Average, Track, reached
from kbevolve.archive.report.style import PALETTE, caption, draw_eager, new_figure, save, scale_speedups

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save_comparison(
    tracks: Mapping[str, Sequence[Track]], file: Path, *, problem: str, device: str, budget: int
) -> None:
    """Draw a comparison into a file (`style.save`): strategy -> its runs, of so many evaluations each."""
    save(lambda: comparison(tracks, problem=problem, device=device, budget=budget), file)


def comparison(tracks: Mapping[str, Sequence[Track]], *, problem: str, device: str, budget: int) -> "Figure":
    """The figure. The legend names each strategy with its last value, the best on top."""
    figure = new_figure(9.4)
    axes = figure.add_subplot()
    found = {name: [(count, reached(runs, count)) for count in range(1, budget + 1)] for name, runs in tracks.items()}
    # A strategy reaches nothing as long as one of its seeds has nothing correct.
    lines = {name: [(count, one) for count, one in line if one] for name, line in found.items()}
    colours = {name: PALETTE[index % len(PALETTE)] for index, name in enumerate(lines)}
    ends = {name: line[-1][1] for name, line in lines.items() if line}
    ranked = sorted(ends, key=lambda name: -ends[name].mean)
    for name in ranked:
        look: dict[str, Any] = {"color": colours[name], "where": "post"}
        for one in tracks[name] if len(tracks[name]) > 1 else ():
            reach = [(count, best) for count in range(1, budget + 1) if (best := one.at(count))]
            axes.step(*zip(*reach, strict=True), **look, linewidth=0.8, alpha=0.28, zorder=2)
        counts, means = zip(*lines[name], strict=True)
        lows, highs = [one.low or one.mean for one in means], [one.high or one.mean for one in means]
        axes.fill_between(counts, lows, highs, step="post", color=colours[name], alpha=0.12, linewidth=0)
        label = f"{name}\n{_words(ends[name])}"
        axes.step(counts, [one.mean for one in means], **look, linewidth=2.0, zorder=4, label=label)
    # The scale fits the seeds, not the intervals, which may be very wide over few seeds.
    scale_speedups(axes, [best or 1.0 for runs in tracks.values() for one in runs for best in one.best])
    axes.set_xlim(0, budget * 1.015)
    draw_eager(axes)
    axes.set_ylabel("speedup over eager of the best so far, lower end")
    axes.set_xlabel("evaluations, starting kernels included")
    if ranked:
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, labelspacing=1.2)
    seeds = max(len(runs) for runs in tracks.values())
    leading = ", ".join(f"{name} {as_times(ends[name].mean)}" for name in ranked[:2])
    caption(
        figure,
        f"{problem}: {leading or 'nothing correct yet'}",
        f"{device}, {counted(seeds, 'seed')}, {budget} evaluations each",
    )
    return figure


def _words(end: Average) -> str:
    interval = f", {as_times(end.low)} to {as_times(end.high)}" if end.low and end.high else ""
    return f"{as_times(end.mean)}{interval}"
