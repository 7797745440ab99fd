"""Best-so-far figures: how the best kernel of a run, or of several, got faster child by child."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kbevolve.archive.formatting import as_times, verdict_words
from kbevolve.archive.records import Verdict
from kbevolve.archive.report.curves import Curve, Point, Step
from kbevolve.archive.report.style import (
    GREY,
    INK,
    MARKERS,
    PALETTE,
    caption,
    draw_eager,
    save,
    scale_speedups,
)
from kbevolve.archive.run_queries import strategy_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Most steps named beside the figure; of more, the smallest gains are not named.
_NAMED_STEPS = 9
#: Islands up to which each has a colour of its own.
_COLOURED_ISLANDS = len(PALETTE)


def save_best_so_far(curves: Sequence[Curve], file: Path, *, device: str) -> None:
    """Draw the curves into a PNG, SVG or PDF file, by its ending.

    Args:
        curves: runs on one problem and one device, at least one.
        file: where to write.
        device: the device, as the title names it.

    Raises:
        UsageError: another ending.
        ArchiveError: the file cannot be written.
    """
    save(lambda: best_so_far(curves, device=device), file)


def best_so_far(curves: Sequence[Curve], *, device: str) -> "Figure":
    """The figure: one run with its islands, failures and champions, or several runs' best lines together."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    single = curves[0] if len(curves) == 1 else None
    failures = _failures(single) if single else {}
    named = _named(single) if single else []
    width, height = 10.4 if named else 8.4, 5.2  # inches
    title = 0.68 / height
    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.08, hspace=0.02, wspace=0.02, rect=(0, 0, 1, 1 - title))
    figure = Figure(figsize=(width, height), layout=layout)
    grid = figure.add_gridspec(
        2 if failures else 1,
        2 if named else 1,
        width_ratios=(2.6, 1) if named else None,
        height_ratios=(10, 0.4 + 0.55 * len(failures)) if failures else None,
    )
    axes = figure.add_subplot(grid[0, 0])
    draw_eager(axes)
    if single:
        _draw_islands(axes, single)
        _draw_best(axes, single, colour=INK, label=None)
        _number_steps(axes, single, named)
    else:
        for index, curve in enumerate(sorted(curves, key=lambda one: -_best_speedup(one))):
            colour = PALETTE[index % len(PALETTE)]
            _draw_dots(axes, curve.points, colour=colour)
            _draw_best(axes, curve, colour=colour, label=_run_label(curve))
    _scale(axes, curves)
    axes.set_ylabel("speedup over eager")
    lowest: Axes = axes
    if failures:
        lowest = figure.add_subplot(grid[1, 0], sharex=axes)
        _draw_rug(lowest, failures)
        axes.tick_params(axis="x", labelbottom=False, length=0)
    lowest.set_xlabel("children evaluated")
    if named:
        _draw_key(figure.add_subplot(grid[:, 1]), named)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(
            loc="lower right" if single is None else "upper left",
            ncols=1 if single is None else _COLOURED_ISLANDS,
            facecolor="white",
            edgecolor="none",
            framealpha=0.85,
            fontsize=8.5,
            handletextpad=0.3,
            columnspacing=1.0,
        )
    _title(figure, curves, device)
    return figure


def _draw_islands(axes: "Axes", curve: Curve) -> None:
    """Every correct child as a dot, by island."""
    islands = sorted({point.birth.island for point in curve.points})
    coloured = 1 < len(islands) <= _COLOURED_ISLANDS
    for island in islands:
        points = [point for point in curve.points if point.birth.island == island]
        _draw_dots(
            axes,
            points,
            colour=PALETTE[island % len(PALETTE)] if coloured else PALETTE[0],
            marker=MARKERS[island % len(MARKERS)] if coloured else "o",
            label=f"island {island}" if coloured else None,
        )


def _draw_dots(
    axes: "Axes", points: Sequence[Point], *, colour: str, marker: str = "o", label: str | None = None
) -> None:
    correct = [
        (point.count, point.evaluation.timing.speedup)
        for point in points
        if point.evaluation.timing.speedup is not None
    ]
    if correct:
        axes.scatter(
            [count for count, _ in correct],
            [speedup for _, speedup in correct],
            s=18 if label else 9,
            color=colour,
            marker=marker,
            alpha=0.85 if label else 0.3,
            edgecolors="white",
            linewidths=0.4,
            zorder=5 if label else 2,
            label=label,
        )


def _draw_best(axes: "Axes", curve: Curve, *, colour: str, label: str | None) -> None:
    """The best so far as a step line with its 95 % interval."""
    # Of the starting kernels only the best: all of them precede the first child.
    by_count = {step.point.count: step.point.evaluation for step in curve.steps}
    if not by_count:
        return
    found = list(by_count.values())
    counts = [*by_count, max(curve.children, *by_count)]
    speedups = [one.timing.speedup or 0.0 for one in found]
    low = [one.timing.speedup_low or one.timing.speedup or 0.0 for one in found]
    high = [one.timing.speedup_high or one.timing.speedup or 0.0 for one in found]
    axes.fill_between(
        counts, [*low, low[-1]], [*high, high[-1]], step="post", color=colour, alpha=0.15, linewidth=0, zorder=3
    )
    axes.step(counts, [*speedups, speedups[-1]], where="post", color=colour, linewidth=1.8, zorder=4, label=label)


def _number_steps(axes: "Axes", curve: Curve, named: Sequence[Step]) -> None:
    """A small numbered disc on each step that the key names."""
    for number, step in enumerate(named, start=1):
        axes.annotate(
            str(number),
            (step.point.count, step.point.evaluation.timing.speedup or 0.0),
            xytext=(-7, 7),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=7,
            color="white",
            fontweight="bold",
            bbox={"boxstyle": "circle,pad=0.22", "facecolor": INK, "edgecolor": "white", "linewidth": 0.8},
            zorder=6,
        )


def _draw_key(axes: "Axes", named: Sequence[Step]) -> None:
    """The key to the numbered steps, as text beside the figure."""
    axes.axis("off")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.text(0.0, 1.0, "steps of the best", fontweight="bold", fontsize=9, va="top")
    for number, step in enumerate(named, start=1):
        height = 1.0 - 0.015 - 0.1 * number
        birth = step.point.birth
        percent = 100 * ((step.gain or 1.0) - 1)
        gain = f"{percent:+.0f} %" if percent >= 10 else f"{percent:+.1f} %"
        axes.text(
            0.035, height, str(number), fontsize=7, color="white", fontweight="bold", ha="center", va="center",
            bbox={"boxstyle": "circle,pad=0.22", "facecolor": INK, "edgecolor": "none"},
        )  # fmt: skip
        axes.text(0.1, height + 0.012, _cut(step.words or birth.operator.value, 34), fontsize=8.5, va="center")
        axes.text(
            0.1, height - 0.026, f"{gain} to {as_times(step.point.evaluation.timing.speedup or 0.0)}, "
            f"{birth.operator.value}, generation {birth.generation}", fontsize=7.5, va="center", color=GREY,
        )  # fmt: skip


def _draw_rug(axes: "Axes", failures: dict[Verdict, list[int]]) -> None:
    """One row of small marks for each way in which children failed."""
    rows = sorted(failures, reverse=True)
    for row, verdict in enumerate(rows):
        axes.scatter(
            failures[verdict], [row] * len(failures[verdict]), marker="|", s=26, linewidths=1.1, color=GREY, zorder=2
        )
    axes.set_yticks(
        range(len(rows)), [f"{verdict_words(verdict)} ({len(failures[verdict])})" for verdict in rows], fontsize=8
    )
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def _scale(axes: "Axes", curves: Sequence[Curve]) -> None:
    from matplotlib.ticker import MaxNLocator

    children = max((curve.children for curve in curves), default=0)
    axes.set_xlim(-0.02 * max(children, 5), 1.02 * max(children, 5))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    points = (point for curve in curves for point in curve.points)
    scale_speedups(
        axes, [point.evaluation.timing.speedup for point in points if point.evaluation.timing.speedup is not None]
    )


def _title(figure: "Figure", curves: Sequence[Curve], device: str) -> None:
    """Two lines at the left: the result; then run, device and date."""
    run = curves[0].run
    best = max(curves, key=_best_speedup, default=None)
    finding = f"{_best_words(best)} the speed of eager" if best and best.published else "nothing correct yet"
    dates = sorted({curve.run.created[:10] for curve in curves if curve.run.created})
    when = dates[0] if len(dates) == 1 else " to ".join((dates[0], dates[-1])) if dates else ""
    if len(curves) == 1:
        islands = len({point.birth.island for point in curves[0].points})
        what = (
            f"{_count(curves[0].children, 'child', 'children')} on {_count(islands, 'island', 'islands')}, run {run.id}"
        )
    else:
        what = f"{len(curves)} runs"
    details = ", ".join(part for part in (_cut(device, 70), when, what) if part)
    caption(figure, f"{run.problem_name}: {finding}", details)


def _failures(curve: Curve) -> dict[Verdict, list[int]]:
    """Verdict to the counts of the children with this verdict."""
    failures: dict[Verdict, list[int]] = {}
    for point in curve.points:
        if point.evaluation.verdict is not Verdict.CORRECT:
            failures.setdefault(point.evaluation.verdict, []).append(point.count)
    return failures


def _named(curve: Curve) -> list[Step]:
    """The last step and those of the largest gains, in order; starting kernels are not named."""
    created = [step for step in curve.steps if step.point.count > 0]
    largest = sorted(created[:-1], key=lambda step: -(step.gain or 0.0))[: _NAMED_STEPS - 1]
    return [step for step in created if step in largest or step is created[-1]]


def _best_speedup(curve: Curve) -> float:
    return curve.published or 0.0


def _best_words(curve: Curve) -> str:
    """``1.94×``, or ``1.94× (confirmed)`` when that was measured again in a contest."""
    return as_times(_best_speedup(curve)) + (" (confirmed)" if curve.champion else "")


def _run_label(curve: Curve) -> str:
    best = _best_words(curve) if curve.published else "nothing correct"
    strategy = strategy_of(curve.run)
    name = curve.run.id if strategy == "evolve" else f"{strategy}, {curve.run.id}"
    return f"{name}: {best} after {_count(curve.children, 'child', 'children')}"


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _cut(text: str, width: int) -> str:
    flat = "".join(character for character in " ".join(text.split()) if character.isprintable())
    return flat if len(flat) <= width else flat[: width - 1] + "…"
