"""Figures of a benchmark: the fast_p curve, the speedup of each problem, and how much of the floor each one reaches."""

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kbevolve.archive.formatting import as_times, counted, percent_words
from kbevolve.archive.report.scores import ProblemResult, fast_p
from kbevolve.archive.report.style import (
    GREY,
    INK,
    PALETTE,
    caption,
    draw_eager,
    new_figure,
    save,
    scale_speedups,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Up to so many problems are named along the axis.
_NAMED = 48
#: Characters of a name.
_NAME = 24
#: Bounds of the thresholds of the fast_p curve; the upper one grows with the speedups.
_LEAST_P, _MOST_P = 0.25, 4.0
_BASELINES = {
    "eager": "over eager, strict flags",
    "default": "over eager, default flags",
    "best": "over the best baseline",
}


def save_bench_figures(results: Sequence[ProblemResult], folder: Path, *, details: str) -> list[Path]:
    """Draw the figures of problems that were judged into a folder; nothing without any. Returns the files.

    `details` is the second line of each: suite, device, budget.
    """
    judged = [one for one in results if not one.not_judged]
    figures: dict[str, Callable[..., Figure]] = {"fast_p": fast_p_curve, "speedups": speedup_bars}
    if any(one.floor_share for one in judged):
        figures["headroom"] = headroom
    files = []
    for name, draw in figures.items() if judged else ():
        files.append(folder / f"{name}.png")
        save(lambda draw=draw: draw(judged, details=details), files[-1])  # type: ignore[misc]
    return files


def fast_p_curve(results: Sequence[ProblemResult], *, details: str) -> "Figure":
    """The share of problems that are more than p times as fast, by p: over each baseline, and by level over eager."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, PercentFormatter

    figure = new_figure(9.4)
    axes = figure.add_subplot()
    speedups = [one.speedup for one in results]
    most = max([_MOST_P, *(1.25 * speedup for speedup in speedups if speedup)])
    levels = list(dict.fromkeys(one.level for one in results))
    for index, level in enumerate(levels if len(levels) > 1 else ()):
        of_level = [one.speedup for one in results if one.level == level]
        style = {"color": GREY, "linewidth": 1.1, "linestyle": ((0, (5, 2)), (0, (2, 2)), (0, (6, 2, 1, 2)))[index % 3]}
        _draw_shares(axes, of_level, most, label=f"level {level} ({len(of_level)}), over eager", **style)
    for (baseline, words), colour in zip(_BASELINES.items(), PALETTE, strict=False):
        found = [one.over(baseline) for one in results]
        complete = all(value is not None for one, value in zip(results, found, strict=True) if one.kernel)
        if complete and (baseline == "eager" or found != speedups):
            label = f"{words}: fast₁ {percent_words(fast_p(found, 1.0))}"
            _draw_shares(axes, found, most, label=label, color=colour, linewidth=2.2, zorder=4)
    axes.axvline(1.0, color=GREY, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
    axes.set_xscale("log")
    axes.set_xlim(_LEAST_P, most)
    axes.xaxis.set_major_locator(FixedLocator([tick for tick in (0.25, 0.5, 1, 2, 5, 10, 20, 50, 100) if tick <= most]))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    axes.set_ylim(0, 1.03)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.grid(axis="y", color="#d9dde3", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel("p: times as fast as the baseline")
    axes.set_ylabel("fast_p: correct and more than p times as fast")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, labelspacing=1.0)
    correct = sum(one.kernel is not None for one in results)
    finding = f"{percent_words(fast_p(speedups, 1.0))} of {counted(len(results), 'problem')} faster than eager"
    caption(figure, f"{finding}, {percent_words(correct / len(results))} correct", details)
    return figure


def speedup_bars(results: Sequence[ProblemResult], *, details: str) -> "Figure":
    """The speedup of each problem over eager with its interval, the fastest first; a cross where nothing is correct."""
    figure, axes, ranked = _by_problem(sorted(results, key=lambda one: -(one.speedup or 0.0)))
    bottom = min([1.0, *(one.speedup for one in ranked if one.speedup)])
    width = 7.0 if len(ranked) <= _NAMED else 3.0  # points, of the small marks
    for place, one, colour, label in _places(ranked):
        if one.speedup is None:
            axes.plot(
                place, bottom, marker="x", color=colour, markersize=5, linestyle="none", clip_on=False, label=label
            )
            continue
        low, high = one.speedup_low or one.speedup, one.speedup_high or one.speedup
        # From eager's speed up or down, so that a slower kernel is seen to be slower.
        axes.bar(place, one.speedup - 1.0, bottom=1.0, width=0.78, color=colour, zorder=3, label=label)
        axes.plot([place, place], [low, high], color=INK, linewidth=width / 6, zorder=4)
        if one.over_best is not None and one.over_best != one.speedup:
            axes.plot(place, one.over_best, marker="_", color=INK, markersize=width, linestyle="none", zorder=5)
    draw_eager(axes)
    scale_speedups(axes, [value for one in ranked for value in (one.speedup, one.over_best) if value])
    axes.set_ylabel("speedup over eager (– over the best baseline)")
    _legend(axes)
    speedups = [one.speedup for one in ranked if one.speedup]
    mean = (
        f"geometric mean {as_times(statistics.geometric_mean(speedups))} over eager" if speedups else "nothing correct"
    )
    caption(figure, f"{mean} of {counted(len(speedups), 'correct kernel')}", details)
    return figure


def headroom(results: Sequence[ProblemResult], *, details: str) -> "Figure":
    """The share of the floor that eager and the kernel reach on each problem."""
    from matplotlib.ticker import PercentFormatter

    known = [one for one in results if one.floor_share and one.eager_floor_share]
    figure, axes, ranked = _by_problem(sorted(known, key=lambda one: -(one.floor_share or 0.0)))
    for place, one, colour, label in _places(ranked):
        before, after = one.eager_floor_share or 0.0, one.floor_share or 0.0
        axes.plot([place, place], [before, after], color=colour, linewidth=1.6, alpha=0.5, zorder=2)
        axes.plot(place, before, "o", markersize=5, markerfacecolor="white", markeredgecolor=GREY, zorder=3)
        axes.plot(place, after, "o", markersize=6, color=colour, zorder=4, label=label)
    axes.plot([], [], "o", markersize=5, markerfacecolor="white", markeredgecolor=GREY, label="eager")
    axes.axhline(1.0, color=GREY, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
    axes.set_ylim(0, 1.04)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.grid(axis="y", color="#d9dde3", linewidth=0.6)
    axes.set_ylabel("time at the roofline over the measured time")
    _legend(axes)
    middle = percent_words(statistics.median(one.floor_share or 0.0 for one in ranked))
    caption(figure, f"median share of the floor {middle}: what is above is headroom", details)
    return figure


def _draw_shares(axes: "Axes", speedups: Sequence[float | None], most: float, **look: object) -> None:
    """fast_p as steps: it falls where p reaches a speedup."""
    steps = sorted({_LEAST_P, most, *(one for one in speedups if one and _LEAST_P < one < most)})
    axes.step(steps, [fast_p(speedups, step) for step in steps], where="post", **look)  # type: ignore[arg-type]


def _by_problem(ranked: Sequence[ProblemResult]) -> "tuple[Figure, Axes, Sequence[ProblemResult]]":
    """A figure with a place for each problem, named where there is room."""
    figure = new_figure(min(14.0, max(7.4, 3.0 + 0.3 * len(ranked))))
    axes = figure.add_subplot()
    if len(ranked) <= _NAMED:
        names = [one.title if len(one.title) <= _NAME else f"{one.title[: _NAME - 1]}…" for one in ranked]
        axes.set_xticks(range(len(ranked)), names, rotation=50, ha="right", rotation_mode="anchor", fontsize=8)
    else:
        axes.set_xlabel(f"{len(ranked)} problems, in this order")
        axes.set_xticks([])
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.7, len(ranked) - 0.3)
    return figure, axes, ranked


def _places(ranked: Sequence[ProblemResult]) -> list[tuple[int, ProblemResult, str, str | None]]:
    """Place, result, colour of its level, and a label for the legend at the first problem of a level."""
    levels = sorted({one.level for one in ranked})
    seen: set[str] = set()
    found = []
    for place, one in enumerate(ranked):
        label = f"level {one.level}" if one.level not in seen and len(levels) > 1 else None
        seen.add(one.level)
        found.append((place, one, PALETTE[levels.index(one.level) % len(PALETTE)], label))
    return found


def _legend(axes: "Axes") -> None:
    by_label = dict(sorted((label, handle) for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)))
    axes.legend(by_label.values(), by_label, loc="upper right", edgecolor="none", framealpha=0.85, fontsize=8.5)
