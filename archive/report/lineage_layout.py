"""Where the kernels of a run lie in a drawing of its lineage: a pure function of its outline.

Generations are columns. Each island is a lane of rows. A child lies in the row of its main parent where that is free,
so that a line of descent reads as a line.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kbevolve.archive.lineage import first_births
from kbevolve.archive.outlines import OutlineEntry
from kbevolve.archive.records import Placement

#: Rows left empty between two islands.
_GAP = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageLayout:
    """Columns and rows from 0, one for each node."""

    #: The first attempt of each kernel that is drawn, by kernel id, and its column and row.
    nodes: Mapping[str, OutlineEntry]
    places: Mapping[str, tuple[int, int]]
    #: Parent and child, both drawn; first those of main parents, then those of other parents.
    edges: tuple[tuple[str, str], ...]
    crossings: tuple[tuple[str, str], ...]
    #: A kernel, and the column and row where it entered another island.
    migrations: tuple[tuple[str, tuple[int, int]], ...]
    #: Island -> its first row and the number of its rows.
    lanes: Mapping[int, tuple[int, int]]
    columns: int
    rows: int


def lineage_layout(entries: Iterable[OutlineEntry], placements: Sequence[Placement] = ()) -> LineageLayout:
    """The layout of these attempts; those without a kernel are left out, and parents that are not among them."""
    nodes = first_births(entries)
    arrivals = {
        (one.island, one.generation, one.kernel): one
        for one in placements
        if one.via == "migration" and one.kernel in nodes
    }
    columns = {
        generation: column
        for column, generation in enumerate(
            sorted({one.generation for one in nodes.values()} | {key[1] for key in arrivals})
        )
    }
    taken: dict[int, dict[int, set[int]]] = {}  # island -> column -> rows
    rows: dict[str, int] = {}

    def free(island: int, column: int, wanted: int) -> int:
        """The free row of a lane that is nearest to the wanted one."""
        full = taken.setdefault(island, {}).setdefault(column, set())
        row = min((row for row in range(len(full) + wanted + 1) if row not in full), key=lambda row: abs(row - wanted))
        full.add(row)
        return row

    for name, entry in nodes.items():
        parent = next((nodes[one] for one in entry.parents if one in rows and nodes[one].island == entry.island), None)
        rows[name] = free(entry.island, columns[entry.generation], rows[parent.kernel or ""] if parent else 0)
    landed = [(key, free(key[0], columns[key[1]], 0)) for key in arrivals]
    lanes, first = {}, 0
    for island in sorted(taken):
        height = 1 + max(row for full in taken[island].values() for row in full)
        lanes[island] = first, height
        first += height + _GAP
    return LineageLayout(
        nodes=nodes,
        places={
            name: (columns[nodes[name].generation], lanes[nodes[name].island][0] + row) for name, row in rows.items()
        },
        edges=tuple((one.parents[0], name) for name, one in nodes.items() if one.parents and one.parents[0] in nodes),
        crossings=tuple((other, name) for name, one in nodes.items() for other in one.parents[1:] if other in nodes),
        migrations=tuple((name, (columns[at], lanes[island][0] + row)) for (island, at, name), row in landed),
        lanes=lanes,
        columns=len(columns),
        rows=max(first - _GAP, 0),
    )
