"""The figure of a comparison: best so far of each strategy by evaluations, mean over seeds with interval."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kbevolve.archive.formatting import as_times
from kbevolve.archive.report.comparison import Average, Track, checkpoints, reached
from kbevolve.archive.report.style import GREY, INK, MARKERS, PALETTE, caption, draw_eager, save, scale_speedups

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Least inches between the names at the right: two lines of text.
_LINE = 0.35
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
    """The figure. Each line is named at its end, the best on top."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    height = 5.2  # inches
    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.08, rect=(0, 0, 1, 1 - 0.68 / height))
    figure = Figure(figsize=(9.4, height), layout=layout)
    grid = figure.add_gridspec(1, 2, width_ratios=(3.2, 1))
    axes = figure.add_subplot(grid[0, 0])
    lines = {name: [reached(runs, count) for count in range(1, budget + 1)] for name, runs in tracks.items() if runs}
    shown = {name: line for name, line in lines.items() if line[-1] is not None}
    ranked = sorted(shown, key=lambda name: -_mean(shown[name][-1]))
    looks = {name: (PALETTE[index % len(PALETTE)], MARKERS[index % len(MARKERS)]) for index, name in enumerate(lines)}
    for name in reversed(ranked):  # the best on top
        for one in tracks[name] if len(tracks[name]) > 1 else ():
            _draw_seed(axes, one, looks[name][0], budget)
        _draw(axes, shown[name], *looks[name])
    _draw_intervals(axes, shown, looks, budget)
    # The scale fits the seeds, not the intervals, which may be very wide over few seeds.
    counts = range(1, budget + 1)
    scale_speedups(axes, [one.at(count) or 1.0 for runs in tracks.values() for one in runs for count in counts])
    axes.set_xlim(0, budget * 1.015)
    draw_eager(axes, inside=True)
    axes.set_ylabel("speedup over eager of the best so far, at least")
    axes.set_xlabel("evaluations, starting kernels included")
    names = figure.add_subplot(grid[0, 1], sharey=axes)
    figure.draw_without_rendering()  # the positions of names depend on the final size of the axes
    figure.set_layout_engine("none")
    _name(names, axes, {name: shown[name][-1] for name in ranked}, looks)
    seeds = max(len(runs) for runs in tracks.values())
    caption(
        figure,
        f"{problem}: {_finding(ranked, shown)}",
        f"{device}, {_counted(seeds, 'seed')}, {budget} evaluations each",
    )
    return figure


def _draw(axes: "Axes", line: Sequence[Average | None], colour: str, marker: str) -> None:
    """The mean as a step line."""
    found = [(count, one.mean) for count, one in enumerate(line, start=1) if one]
    axes.step(*zip(*found, strict=True), where="post", color=colour, linewidth=2.0, zorder=4)


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


def _name(
    names: "Axes", axes: "Axes", ends: Mapping[str, Average | None], looks: Mapping[str, tuple[str, str]]
) -> None:
    """The names beside the ends of their lines, moved apart where they would overlap."""
    names.axis("off")
    names.set_xlim(0, 1)
    size = axes.get_window_extent()
    to_share = axes.transData.transform
    begin, _ = names.transAxes.inverted().transform((size.x1 + 2, 0))
    shares = [(to_share((0, _mean(end)))[1] - size.y0) / size.height for end in ends.values()]
    step = _LINE * axes.figure.dpi / size.height
    places = _apart(shares, step)
    for (name, end), share, place in zip(ends.items(), shares, places, strict=True):
        colour, marker = looks[name]
        assert end is not None, "a line that is named has an end"
        names.plot([begin, 0.08], [share, place], color=colour, linewidth=0.9, transform=names.transAxes, clip_on=False)
        names.plot([0.13], [place], marker=marker, color=colour, markersize=5, linestyle="", transform=names.transAxes)
        names.text(0.19, place + step * 0.2, name, transform=names.transAxes, fontsize=9.5, va="center", color=INK,
                   fontweight="bold")  # fmt: skip
        interval = (
            f"{as_times(end.low)} to {as_times(end.high)}" if end.low and end.high else "too few seeds for an interval"
        )
        names.text(0.19, place - step * 0.24, f"{as_times(end.mean)}, {interval}", transform=names.transAxes,
                   fontsize=8, va="center", color=GREY)  # fmt: skip


def _apart(shares: Sequence[float], step: float) -> list[float]:
    """Positions from the top down, at least a step apart and near their lines: overlapping names are centred on their
    mean."""
    groups: list[list[float]] = []
    for share in shares:
        groups.append([share])
        while len(groups) > 1 and _places(groups[-2], step)[-1] - step < _places(groups[-1], step)[0]:
            last = groups.pop()
            groups[-1] += last
    return [place for group in groups for place in _places(group, step)]


def _places(group: Sequence[float], step: float) -> list[float]:
    extent = step * (len(group) - 1)
    middle = sum(group) / len(group)
    top = min(max(middle + extent / 2, extent + step / 2), 1 - step / 2)
    return [top - step * index for index in range(len(group))]


def _finding(ranked: Sequence[str], shown: Mapping[str, Sequence[Average | None]]) -> str:
    if not ranked:
        return "nothing correct yet"
    best = f"{ranked[0]} reaches {as_times(_mean(shown[ranked[0]][-1]))}"
    return best if len(ranked) == 1 else f"{best}, {ranked[1]} {as_times(_mean(shown[ranked[1]][-1]))}"


def _mean(end: Average | None) -> float:
    return end.mean if end else 0.0


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
