"""Best-so-far figures: how the best kernel of a run, or of several, got faster child by child."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbevolve.archive.formatting import CONFIRMED, as_times, verdict_words
from kbevolve.archive.records import Operator, Verdict
from kbevolve.archive.report.curves import Curve, Point
from kbevolve.archive.report.measures import MEASURES
from kbevolve.archive.report.style import (
    GREY,
    INK,
    MANY,
    MARKERS,
    PALETTE,
    caption,
    draw_eager,
    new_figure,
    save,
    scale_speedups,
)
from kbevolve.archive.run_queries import strategy_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

#: Most steps named beside the figure; of more, the smallest gains are not named.
_NAMED_STEPS = 9
#: Gain from which a step has a number: a smaller one would be named "+0.0 %".
_LEAST_GAIN = 1.0005
#: Islands up to which each has a colour of its own.
_COLOURED_ISLANDS = len(PALETTE)


def save_best_so_far(curves: Sequence[Curve], file: Path, *, device: str, by: str = "children") -> None:
    """Draw runs on one problem and one device, at least one, into a file (`style.save`)."""
    save(lambda: best_so_far(curves, device=device, by=by), file)


def best_so_far(curves: Sequence[Curve], *, device: str, by: str = "children") -> "Figure":
    """The figure: one run with its islands, failures and champions, or several runs' best lines together.

    `by` is the measure of the curves (`measures.MEASURES`).
    """
    single = curves[0] if len(curves) == 1 else None
    failures = _failures(single) if single else {}
    figure = new_figure(10.4 if single else 11.4)
    if failures:
        axes, lowest = figure.subplots(2, sharex=True, height_ratios=(10, 0.4 + 0.55 * len(failures)))
        _draw_rug(lowest, failures)
        axes.tick_params(axis="x", length=0)
    else:
        axes = lowest = figure.subplots()
    draw_eager(axes)
    if single:
        _draw_islands(axes, single)
        _draw_best(axes, single, colour=INK, label=None)
        _draw_champion(axes, single)
        _name_steps(axes, single)
    for index, curve in enumerate(() if single else sorted(curves, key=lambda one: -(one.published or 0.0))):
        colour = PALETTE[index % len(PALETTE)]
        _draw_dots(axes, curve.points, colour=colour)
        _draw_best(axes, curve, colour=colour, label=_run_label(curve))
    _scale(axes, curves, by)
    axes.set_ylabel("speedup over eager")
    lowest.set_xlabel(MEASURES[by])
    above = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": 1 + _COLOURED_ISLANDS, "borderaxespad": 0.2}
    # Beside the curves: within the axes the names of six runs would cover them.
    look = above if single else {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
    axes.legend(edgecolor="none", framealpha=0.85, fontsize=8.5, handletextpad=0.3, columnspacing=1.0, **look)
    _title(figure, curves, device)
    return figure


def _draw_islands(axes: "Axes", curve: Curve) -> None:
    """Every correct child as a dot, by island."""
    islands = sorted({point.birth.island for point in curve.points})
    if not 1 < len(islands) <= _COLOURED_ISLANDS:
        _draw_dots(axes, curve.points, colour=PALETTE[0])
        return
    for index, island in enumerate(islands):
        points = [point for point in curve.points if point.birth.island == island]
        _draw_dots(axes, points, colour=PALETTE[index], marker=MARKERS[index], label=f"island {island}")
        _draw_island_best(axes, curve, points, PALETTE[index])


def _draw_island_best(axes: "Axes", curve: Curve, points: Sequence[Point], colour: str) -> None:
    """The best so far of one island as a thin line: the children it had itself."""
    best: dict[float, float] = {}
    shown = 0.0
    for point in points:
        timing = point.evaluation.timing
        leads = point.evaluation.kernel != curve.reference and (timing.speedup_low or 0.0) > shown
        if timing.speedup and leads:
            shown, best[point.count] = timing.speedup_low or 0.0, timing.speedup
    if best:
        counts, speedups = [*best, curve.extent], [*best.values(), list(best.values())[-1]]
        axes.step(counts, speedups, where="post", color=colour, linewidth=0.9, alpha=0.6, zorder=2)


def _draw_dots(
    axes: "Axes", points: Sequence[Point], *, colour: str, marker: str = "o", label: str | None = None
) -> None:
    correct = [(point.count, speedup) for point in points if (speedup := point.evaluation.timing.speedup) is not None]
    if correct:
        counts, speedups = zip(*correct, strict=True)
        axes.scatter(
            counts,
            speedups,
            s=18 if label else 9,
            color=colour,
            marker=marker,
            alpha=0.85 if label else 0.3,
            edgecolors="white",
            linewidths=0.4,
            zorder=5 if label else 2,
            label=label,
            rasterized=len(correct) > MANY,
        )


def _draw_best(axes: "Axes", curve: Curve, *, colour: str, label: str | None) -> None:
    """The best so far as a step line with its 95 % interval."""
    # Of the starting kernels only the best: all of them precede the first child.
    by_count = {step.point.count: step.point.evaluation for step in curve.steps}
    if not by_count:
        return
    found = list(by_count.values())
    counts = [*by_count, curve.extent]
    speedups = [one.timing.speedup or 0.0 for one in found]
    low = [one.timing.speedup_low or one.timing.speedup or 0.0 for one in found]
    high = [one.timing.speedup_high or one.timing.speedup or 0.0 for one in found]
    axes.fill_between(
        counts,
        [*low, low[-1]],
        [*high, high[-1]],
        step="post",
        color=colour,
        alpha=0.15,
        linewidth=0,
        zorder=3,
        label=None if label else "95 % interval of the best",
    )
    axes.step(counts, [*speedups, speedups[-1]], where="post", color=colour, linewidth=1.8, zorder=4, label=label)


def _draw_champion(axes: "Axes", curve: Curve) -> None:
    """The published speedup with its interval: measured again, it may lie beside the line of first evaluations."""
    if (one := curve.champion) is not None:
        axes.errorbar(
            [curve.extent or 1],
            [one.speedup],
            [[max(one.speedup - one.speedup_low, 0.0)], [max(one.speedup_high - one.speedup, 0.0)]],
            fmt="*",
            markersize=13,
            color=INK,
            markerfacecolor="white",
            zorder=7,
            clip_on=False,
            label="confirmed",
        )


def _name_steps(axes: "Axes", curve: Curve) -> None:
    """Small numbers on the last step and on those of the largest gains, and beside the figure what made them."""
    found = [step for step in curve.steps if step.point.birth.operator is not Operator.SEED]
    # A step may gain nothing and still lead, by a narrower interval.
    created = [step for step in found if (step.gain or 1.0) > _LEAST_GAIN or step is found[-1]]
    largest = sorted(created[:-1], key=lambda step: -(step.gain or 0.0))[: _NAMED_STEPS - 1]
    lines = ["steps of the best"]
    for number, step in enumerate((step for step in created if step in largest or step is created[-1]), start=1):
        speedup, birth = step.point.evaluation.timing.speedup or 0.0, step.point.birth
        axes.annotate(
            str(number), (step.point.count, speedup), xytext=(-7, 7), textcoords="offset points", ha="center",
            fontsize=7, color="white", zorder=6, bbox={"boxstyle": "circle,pad=0.22", "facecolor": INK},
        )  # fmt: skip
        lines.append(f"{number}  {_cut(step.words or birth.operator.value, 34)}")
        lines.append(
            f"    {100 * ((step.gain or 1.0) - 1):+.1f} % to {as_times(speedup)}, generation {birth.generation}"
        )
    if created:
        words = axes.text(1.02, 1.0, "\n".join(lines), transform=axes.transAxes, va="top", fontsize=8, linespacing=1.5)
        _make_room(axes, words)


def _make_room(axes: "Axes", words: "Text") -> None:
    """Keep the right margin free for `words`; the layout would push what is below them away, too."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure: Any = axes.figure
    canvas: Any = FigureCanvasAgg(figure)
    words.set_in_layout(False)
    inches = words.get_window_extent(canvas.get_renderer()).width / figure.dpi + 0.45
    engine = figure.get_layout_engine()
    left, bottom, _, height = engine.get()["rect"]
    engine.set(rect=(left, bottom, 1 - inches / figure.get_figwidth(), height))


def _draw_rug(axes: "Axes", failures: dict[Verdict, list[float]]) -> None:
    """One row of small marks for each way in which children failed."""
    rows = sorted(failures, reverse=True)
    axes.eventplot([failures[verdict] for verdict in rows], linelengths=0.6, linewidths=1.1, colors=GREY)
    axes.set_yticks(
        range(len(rows)), [f"{verdict_words(verdict)} ({len(failures[verdict])})" for verdict in rows], fontsize=8
    )
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def _scale(axes: "Axes", curves: Sequence[Curve], by: str) -> None:
    from matplotlib.ticker import MaxNLocator

    end = max((curve.extent for curve in curves), default=0) or 1
    end = max(end, 5) if by == "children" else end
    axes.set_xlim(-0.02 * end, 1.02 * end)
    axes.xaxis.set_major_locator(MaxNLocator(integer=by in ("children", "tokens"), nbins=8))
    speedups = (point.evaluation.timing.speedup for curve in curves for point in curve.points)
    scale_speedups(axes, [speedup for speedup in speedups if speedup is not None])


def _title(figure: "Figure", curves: Sequence[Curve], device: str) -> None:
    """Two lines at the left: the result; then run, device and date."""
    run = curves[0].run
    best = max(curves, key=lambda one: one.published or 0.0, default=None)
    finding = _best_words(best, " the speed of eager") if best and best.published else "nothing correct yet"
    islands = len({point.birth.island for point in curves[0].points})
    what = (
        f"{curves[0].children} children on {islands} islands, run {run.id}"
        if len(curves) == 1
        else f"{len(curves)} runs"
    )
    when = max(curve.run.created for curve in curves)[:10]
    details = ", ".join(part for part in (_cut(device, 70), when, what) if part)
    caption(figure, f"{run.problem_name}: {finding}", details)


def _failures(curve: Curve) -> dict[Verdict, list[float]]:
    """Verdict to the counts of the children with this verdict."""
    failures: dict[Verdict, list[float]] = {}
    for point in curve.points:
        if point.evaluation.verdict is not Verdict.CORRECT:
            failures.setdefault(point.evaluation.verdict, []).append(point.count)
    return failures


def _best_words(curve: Curve, unit: str = "") -> str:
    """``1.94×``, or ``1.94× (confirmed)`` when that was measured again in a contest; `unit` follows the number."""
    return as_times(curve.published or 0.0) + unit + (f" {CONFIRMED}" if curve.champion else "")


def _run_label(curve: Curve) -> str:
    best = _best_words(curve) if curve.published else "nothing correct"
    strategy = strategy_of(curve.run)
    name = curve.run.id if strategy == "evolve" else f"{strategy}, {curve.run.id}"
    return f"{name}: {best} after {curve.children} children"


def _cut(text: str, width: int) -> str:
    flat = "".join(character for character in " ".join(text.split()) if character.isprintable())
    return flat if len(flat) <= width else flat[: width - 1] + "…"
