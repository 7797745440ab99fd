"""The lineage of a run as SVG: curves in a few paths, and one circle with a link for each kernel."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any
from urllib.parse import quote

from flask import url_for
from markupsafe import Markup, escape

from kbevolve.archive.formatting import as_times
from kbevolve.archive.lineage import main_line
from kbevolve.archive.outlines import OutlineEntry
from kbevolve.archive.records import Verdict
from kbevolve.archive.report.lineage_layout import LineageLayout, lineage_layout
from kbevolve.evolve.web.charts import SERIES, shade
from kbevolve.evolve.web.code import visible
from kbevolve.evolve.web.snapshot import RunFacts, Snapshot

#: Kernels of a lineage that a browser draws smoothly; of more, those without descendants and without merit are left
#: out first.
MOST_DRAWN = 4_000


@dataclass(frozen=True)
class LineageDrawing:
    """A lineage in units of its drawing: wide where it has few generations, close where it has hundreds."""

    layout: LineageLayout

    @cached_property
    def column(self) -> int:
        """Units of a column."""
        return max(22, min(150, 900 // max(self.layout.columns, 1)))

    @cached_property
    def roomy(self) -> bool:
        """Whether speedups can be written beside the kernels."""
        return self.column >= 60

    @cached_property
    def row(self) -> int:
        """Units of a row."""
        return 34 if self.roomy else 16

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the whole."""
        return 92 + self.layout.columns * self.column, 52 + self.layout.rows * self.row

    def at(self, place: tuple[int, int]) -> tuple[int, int]:
        """The units of a column and a row."""
        return 66 + place[0] * self.column, 26 + place[1] * self.row

    def edges(self, pairs: Iterable[tuple[str, str]]) -> str:
        """Curves from parents to children."""
        places = self.layout.places
        return "".join(_curve(self.at(places[parent]), self.at(places[child])) for parent, child in pairs)

    def migrations(self) -> str:
        """Curves from kernels to where they entered other islands."""
        return "".join(_curve(self.at(self.layout.places[one]), self.at(to)) for one, to in self.layout.migrations)


def drawn_lineage(snapshot: Snapshot, facts: RunFacts) -> dict[str, Any]:
    """What the template of the lineage needs, by name."""
    drawn: list[OutlineEntry] = list(facts.first.values())
    left_out = 0
    if len(drawn) > MOST_DRAWN:
        parents = {parent for one in drawn for parent in one.parents}
        merit = [one for one in drawn if one.kernel in parents or one.kernel == facts.summary.best_kernel]
        others = [one for one in drawn if one.kernel not in parents and one.kernel != facts.summary.best_kernel]
        others.sort(key=lambda one: -(one.speedup_low or 0.0))
        kept = {one.kernel for one in (merit + others)[:MOST_DRAWN]}
        left_out = len(drawn) - len(kept)
        drawn = [one for one in drawn if one.kernel in kept]
    placements = snapshot.archive.runs.placements(facts.run.id)
    layout = lineage_layout(drawn, placements)
    drawing = LineageDrawing(layout)
    fastest = max((one.speedup or 0.0 for one in drawn), default=1.0)
    line = [one.kernel or "" for one in main_line(facts.summary.best_kernel or "", drawn)]
    techniques = [name for name, _ in Counter(one.technique for one in drawn if one.technique).most_common()]
    failed = {name for name, one in layout.nodes.items() if one.verdict is not Verdict.CORRECT}
    return {
        "layout": layout,
        "left_out": left_out,
        "techniques": techniques,
        "best": fastest,
        "edges": {
            "cross": drawing.edges(layout.crossings),
            "to-failed": drawing.edges(pair for pair in layout.edges if pair[1] in failed),
            "to-correct": drawing.edges(pair for pair in layout.edges if pair[1] not in failed),
            "migration": drawing.migrations(),
            "mainline": drawing.edges(pairwise(reversed(line))),
        },
        "drawing": drawing,
        "nodes": Markup("\n".join(_nodes(drawing, fastest, techniques, line))),
    }


def _nodes(drawing: LineageDrawing, fastest: float, techniques: Sequence[str], line: Sequence[str]) -> Iterator[str]:
    """The kernels as SVG; `line` is that of the best, which comes first."""
    main, top = set(line), url_for("kernels.kernel", kernel_id="-").removesuffix("-")
    for name, entry in drawing.layout.nodes.items():
        x, y = drawing.at(drawing.layout.places[name])
        speed = as_times(entry.speedup) if entry.speedup else "failed"
        classes = _classes(entry, fastest, techniques) + (" main" if name in main else "")
        radius = 6 if line and name == line[0] else 4
        words = escape(visible(f"{speed} {entry.words[:120]} ({name})"))
        circle = f'<circle class="n {classes}" cx="{x}" cy="{y}" r="{radius}"><title>{words}</title></circle>'
        yield f'<a href="{top}{quote(name, safe="")}">{circle}</a>'
        if drawing.roomy and entry.speedup:
            yield f'<text class="speed" x="{x}" y="{y + 17}" text-anchor="middle">{speed}</text>'


def _classes(entry: OutlineEntry, best: float, techniques: Sequence[str]) -> str:
    """The classes of a node: its speedup, island, operator and technique."""
    technique = techniques.index(entry.technique) if entry.technique in techniques[:SERIES] else SERIES
    failed = "" if entry.verdict is Verdict.CORRECT else " failed"
    return f"{shade(entry.speedup, best)} i{min(entry.island, SERIES)} o-{entry.operator.value} t{technique}{failed}"


def _curve(start: tuple[int, int], end: tuple[int, int]) -> str:
    (x, y), (to_x, to_y) = start, end
    if y == to_y:
        return f"M{x} {y}H{to_x}"
    half = (x + to_x) // 2
    return f"M{x} {y}C{half} {y} {half} {to_y} {to_x} {to_y}"
