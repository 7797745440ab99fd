"""The drawings of the pages, as paths of SVG. Colours are classes of the style sheet, so that they follow the theme.

Thousands of kernels are one path: a page stays small, and a browser draws it at once.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from kbevolve.archive.records import Confirmation, Measurement, Verdict
from kbevolve.evolve.web.progress import Milestone, decisive

#: Size of a chart in its own units, and the room beside its axes.
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 960, 320, 46, 44, 20, 14
#: Colours of series; a further one is grey.
SERIES = 6
#: Classes of speedup: below 1, and then equal steps of its logarithm up to the best.
_SHADES = 6


@dataclass(frozen=True)
class AxisScale:
    """From values to units of the drawing; logarithmic with `log`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The place of a value, to a tenth of a unit."""
        if self.log:
            value = math.log(max(value, self.low))
        origin, step = self._origin_and_step
        return round(self.start + (value - origin) * step, 1)

    @cached_property
    def _origin_and_step(self) -> tuple[float, float]:
        """The value at the start, and the units of a step of 1."""
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        return low, (self.end - self.start) / ((high - low) or 1.0)


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Lines over the children judged."""

    #: Place and label of each tick.
    x_ticks: Sequence[tuple[float, str]] = ()
    y_ticks: Sequence[tuple[float, str]] = ()
    #: Class and path.
    dots: Sequence[tuple[str, str]] = ()
    lines: Sequence[tuple[str, str]] = ()
    band: str = ""
    #: Path of the marks of children that failed, below the axis.
    failures: str = ""
    #: Place of eager's speed; None where it is off the drawing.
    eager: float | None = None
    #: Place of the confirmed speedup and of the ends of its interval: x, y, low, high; None without one.
    confirmed: tuple[float, float, float, float] | None = None
    #: Place and milestone of each improvement.
    steps: Sequence[tuple[float, float, Milestone]] = ()
    #: Class and name of each line, for a legend.
    legend: Sequence[tuple[str, str]] = ()
    width: int = WIDTH
    height: int = HEIGHT


def progress_chart(found: Sequence[Milestone], champion: Confirmation | None = None) -> Chart:
    """The best so far with its interval, every correct child by island, a mark for each that failed, the champion."""
    axes = _axes([found], confirmed=champion.speedup if champion else None)
    if axes is None:
        return Chart()
    x, y = axes
    dots: dict[int, list[str]] = {}
    for one in found:
        entry = one.entry
        if entry.speedup:
            dots.setdefault(entry.island, []).append(f"M{x(one.count)} {y(entry.speedup)}h0")
    leads = _last_of_each_count([one for one in found if one.leads])
    end = x(max(one.count for one in found))
    line = _steps([(x(one.count), y(one.entry.speedup or 1.0)) for one in leads], end)
    lows = [(x(one.count), y(one.entry.speedup_low or one.entry.speedup or 1.0)) for one in leads]
    highs = [(x(one.count), y(one.entry.speedup_high or one.entry.speedup or 1.0)) for one in leads]
    failed = (one for one in found if one.entry.verdict is not Verdict.CORRECT)
    islands = sorted(dots)
    return Chart(
        x_ticks=_counts(x),
        y_ticks=_speedups(y),
        dots=[(f"i{min(island, SERIES)}", "".join(dots[island])) for island in islands],
        lines=[("best", line)] if line else [],
        band=_band(lows, highs, end),
        failures="".join(f"M{x(one.count)} {HEIGHT - BOTTOM + 4}v7" for one in failed),
        eager=y(1.0),
        confirmed=(end, y(champion.speedup), y(champion.speedup_low), y(champion.speedup_high)) if champion else None,
        steps=[(x(one.count), y(one.entry.speedup or 1.0), one) for one in decisive(leads)],
        legend=[(f"i{min(island, SERIES)}", f"island {island}") for island in islands],
    )


def islands_chart(found: Sequence[Milestone]) -> Chart:
    """The best so far of each island, to the end of the run; about square."""
    islands = sorted({one.entry.island for one in found})
    series = {f"island {name}": [one for one in found if one.entry.island == name] for name in islands}
    return comparison_chart(series, end=max((one.count for one in found), default=0), width=480, height=380)


def comparison_chart(
    series: Mapping[str, Sequence[Milestone]], *, end: int | None = None, width: int = WIDTH, height: int = HEIGHT
) -> Chart:
    """The best so far of several series, by name; each up to its own last child, or to `end`."""
    axes = _axes(list(series.values()), width, height)
    if axes is None:
        return Chart()
    x, y = axes
    lines = []
    for index, found in enumerate(series.values()):
        points, best = [], 0.0
        for one in found:
            if one.entry.speedup and (one.entry.speedup_low or 0.0) > best:
                best = one.entry.speedup_low or 0.0
                points.append((x(one.count), y(one.entry.speedup)))
        last = end if end is not None else max((one.count for one in found), default=0)
        lines.append((f"i{min(index, SERIES)}", _steps(points, x(last))))
    return Chart(
        x_ticks=_counts(x),
        y_ticks=_speedups(y),
        lines=[line for line in lines if line[1]],
        eager=y(1.0),
        legend=[(name, label) for (name, _), label in zip(lines, series, strict=True)],
        width=width,
        height=height,
    )


def shade(speedup: float | None, best: float) -> str:
    """The class of a speedup: ``s0`` below eager's speed, then ``s1`` to ``s5`` for the best of the run."""
    if not speedup:
        return "none"
    if speedup < 1:
        return "s0"
    share = math.log(speedup) / math.log(best) if best > 1 else 1.0
    return f"s{min(1 + int(share * (_SHADES - 1)), _SHADES - 1)}"


@dataclass(frozen=True, kw_only=True)
class BlockChart:
    """Every timed call of an evaluation as a dot, by what was timed."""

    #: Role, its place, and the path of its calls.
    roles: Sequence[tuple[str, int, str]]
    ticks: Sequence[tuple[float, str]]
    height: int


def block_chart(blocks: Sequence[Measurement]) -> BlockChart | None:
    """The chart; None without blocks. Calls beyond three times the slower median are drawn at the edge."""
    times: dict[str, list[float]] = {}
    for block in sorted(blocks, key=lambda block: block.role):  # the child, the reference, the rival
        times.setdefault(block.role, []).extend(time for time in block.times_ms if time > 0)
    times = {role: found for role, found in times.items() if found}
    if not times:
        return None
    top = min(max(map(max, times.values())), 3 * max(sorted(found)[len(found) // 2] for found in times.values()))
    x = AxisScale(0.0, top * 1.02 or 1.0, 90, WIDTH - RIGHT)
    step = _nice(top / 6)
    return BlockChart(
        roles=[
            (role, 22 + 34 * row, "".join(f"M{x(min(time, top))} {22 + 34 * row + 5 * (index % 3 - 1)}h0"
                                          for index, time in enumerate(found[:3000])))
            for row, (role, found) in enumerate(times.items())
        ],
        ticks=[(x(index * step), f"{index * step:g} ms") for index in range(int(top / step) + 1)],
        height=34 * len(times) + 34,
    )  # fmt: skip


def _axes(
    series: Sequence[Sequence[Milestone]], width: int = WIDTH, height: int = HEIGHT, confirmed: float | None = None
) -> tuple[AxisScale, AxisScale] | None:
    speedups = [one.entry.speedup for found in series for one in found if one.entry.speedup]
    speedups += [confirmed] if confirmed else []
    if not speedups:
        return None
    children = max([1, *(one.count for found in series for one in found)])
    top, low = max([*speedups, 1.0]), min([*speedups, 1.0])
    log = top / low > 8.0  # beyond about a decade a linear axis shows nothing of the beginning
    bottom = max(low / 1.2, top / 1e4) if log else 0.0
    return AxisScale(0, children, LEFT, width - RIGHT), AxisScale(bottom, top * 1.08, height - BOTTOM, TOP, log)


def _counts(x: AxisScale) -> list[tuple[float, str]]:
    step = max(int(_nice(x.high * 100 / x.end)), 1)
    return [(x(count), f"{count:,}") for count in range(0, int(x.high) + 1, step)]


def _speedups(y: AxisScale) -> list[tuple[float, str]]:
    if not y.log:
        step = _nice(y.high / 5)
        return [(y(index * step), f"{index * step:g}×") for index in range(1, int(y.high / step) + 1)]
    decades = range(math.floor(math.log10(y.low)), math.ceil(math.log10(y.high)) + 1)
    values = [factor * 10.0**power for power in decades for factor in (1, 2, 5)]
    return [(y(value), f"{value:g}×") for value in values if y.low <= value <= y.high]


def _nice(step: float) -> float:
    """1, 2 or 5 times a power of ten, at least `step`."""
    unit = 10.0 ** math.floor(math.log10(step)) if step > 0 else 1.0
    return next(factor * unit for factor in (1, 2, 5, 10) if factor * unit >= step * 0.999)


def _last_of_each_count(found: Iterable[Milestone]) -> list[Milestone]:
    """Of the starting kernels, which precede every child, only the best."""
    return list({one.count: one for one in found}.values())


def _steps(points: Sequence[tuple[float, float]], end: float) -> str:
    if not points:
        return ""
    (x, y), *others = points
    return f"M{x} {y}" + "".join(f"H{x}V{y}" for x, y in others) + f"H{end}"


def _band(lows: Sequence[tuple[float, float]], highs: Sequence[tuple[float, float]], end: float) -> str:
    if not lows:
        return ""
    back: list[tuple[float, float]] = []
    x_after = end
    for x, y in reversed(lows):
        back += [(x_after, y), (x, y)]
        x_after = x
    return _steps(highs, end) + "".join(f"L{x} {y}" for x, y in back) + "Z"
