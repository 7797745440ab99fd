"""The figure of a comparison: best so far of each strategy by evaluations, mean over seeds with interval."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kbevolve.archive.formatting import as_times
from kbevolve.archive.report.comparison import Average, Track, checkpoints, reached
from kbevolve.archive.report.style import MARKERS, PALETTE, caption, draw_eager, new_figure, save, scale_speedups

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Share of the budget by which intervals at one number of evaluations are shifted apart.
_ASIDE = 0.011


def save_comparison(
    tracks: Mapping[str, Sequence[Track]], file: Path, *, problem: str, device: str, budget: int
) -> None:
    """Draw a comparison into a PNG, SVG or PDF file, by its ending.

    Args:
        tracks: strategy -> its runs.
        file: where to write.
        problem: its name.
        device: in words.
        budget: evaluations of a run.

    Raises:
        UsageError: another ending.
        ArchiveError: the file cannot be written.
    """
    save(lambda: comparison(tracks, problem=problem, device=device, budget=budget), file)


def comparison(tracks: Mapping[str, Sequence[Track]], *, problem: str, device: str, budget: int) -> "Figure":
    """The figure. The legend names each strategy with its last value, the best on top."""
    figure = new_figure(9.4)
    axes = figure.add_subplot()
    lines = {name: [reached(runs, count) for count in range(1, budget + 1)] for name, runs in tracks.items() if runs}
    shown = {name: line for name, line in lines.items() if line[-1] is not None}
    ranked = sorted(shown, key=lambda name: -_mean(shown[name][-1]))
    looks = {name: (PALETTE[index % len(PALETTE)], MARKERS[index % len(MARKERS)]) for index, name in enumerate(lines)}
    for name in ranked:
        colour, marker = looks[name]
        for one in tracks[name] if len(tracks[name]) > 1 else ():
            _draw_seed(axes, one, colour, budget)
        found = [(count, one.mean) for count, one in enumerate(shown[name], start=1) if one]
        axes.step(*zip(*found, strict=True), where="post", color=colour, linewidth=2.0, zorder=4)
        axes.plot([], [], color=colour, marker=marker, label=f"{name}\n{_interval(shown[name][-1])}")
    _draw_intervals(axes, shown, looks, budget)
    # The scale fits the seeds, not the intervals, which may be very wide over few seeds.
    counts = range(1, budget + 1)
    scale_speedups(axes, [one.at(count) or 1.0 for runs in tracks.values() for one in runs for count in counts])
    axes.set_xlim(0, budget * 1.015)
    draw_eager(axes)
    axes.set_ylabel("speedup over eager of the best so far, at least")
    axes.set_xlabel("evaluations, starting kernels included")
    if ranked:
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, labelspacing=1.2)
    seeds = max(len(runs) for runs in tracks.values())
    counted = f"{seeds} seed{'' if seeds == 1 else 's'}"
    caption(figure, f"{problem}: {_finding(ranked, shown)}", f"{device}, {counted}, {budget} evaluations each")
    return figure


def _draw_seed(axes: "Axes", one: Track, colour: str, budget: int) -> None:
    """One run as a faint step line."""
    found = [(count, best) for count in range(1, budget + 1) if (best := one.at(count))]
    if found:
        axes.step(*zip(*found, strict=True), where="post", color=colour, linewidth=0.8, alpha=0.28, zorder=2)


def _draw_intervals(
    axes: "Axes",
    shown: Mapping[str, Sequence[Average | None]],
    looks: Mapping[str, tuple[str, str]],
    budget: int,
) -> None:
    """The mean with its interval at a quarter of the budget, at half of it and at its end, side by side."""
    aside = _ASIDE * budget
    for index, (name, line) in enumerate(shown.items()):
        colour, marker = looks[name]
        for count in checkpoints(budget):
            one = line[count - 1]
            if one is None:
                continue
            at = count - aside * (len(shown) - 1 - index if count == budget else len(shown) / 2 - index)
            low, high = one.low or one.mean, one.high or one.mean
            axes.errorbar(
                [at], [one.mean], yerr=[[one.mean - low], [high - one.mean]], color=colour, marker=marker, markersize=5,
                markeredgecolor="white", markeredgewidth=0.7, elinewidth=1.1, capsize=2.2, capthick=1.1, zorder=5,
            )  # fmt: skip


def _finding(ranked: Sequence[str], shown: Mapping[str, Sequence[Average | None]]) -> str:
    if not ranked:
        return "nothing correct yet"
    best = f"{ranked[0]} reaches {as_times(_mean(shown[ranked[0]][-1]))}"
    return best if len(ranked) == 1 else f"{best}, {ranked[1]} {as_times(_mean(shown[ranked[1]][-1]))}"


def _mean(end: Average | None) -> float:
    return end.mean if end else 0.0


def _interval(end: Average | None) -> str:
    words = as_times(_mean(end))
    return f"{words}, {as_times(end.low)} to {as_times(end.high)}" if end and end.low and end.high else words
