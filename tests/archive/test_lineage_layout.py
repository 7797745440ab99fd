from typing import Any

from kbevolve.archive.outlines import OutlineEntry
from kbevolve.archive.records import BirthState, Operator, Placement, Verdict
from kbevolve.archive.report.lineage_layout import lineage_layout
from kbevolve.archive.store import Archive
from tests.small_archive import Sample


def entry(kernel: str, generation: int, *parents: str, island: int = 0, **changes: Any) -> OutlineEntry:
    facts: dict[str, Any] = {
        "slot": 0, "operator": Operator.TUNE, "state": BirthState.CREATED, "idea": "", "title": "", "technique": "",
        "note": "", "verdict": Verdict.CORRECT, "time_ms": 1.0, "speedup": 1.0, "speedup_low": 0.9, "speedup_high": 1.1,
        "number": 1,
    }  # fmt: skip
    return OutlineEntry(generation=generation, island=island, kernel=kernel, parents=parents, **facts | changes)


def test_every_kernel_has_a_place_of_its_own(small_archive: Sample) -> None:
    with Archive(small_archive.path, read_only=True) as archive:
        layout = lineage_layout(archive.outline(small_archive.run), archive.runs.placements(small_archive.run.id))
    assert set(layout.nodes) == set(small_archive.evaluations)
    assert len(set(layout.places.values())) == len(layout.places)
    assert all(0 <= column < layout.columns and 0 <= row < layout.rows for column, row in layout.places.values())
    for name, (_, row) in layout.places.items():
        first, height = layout.lanes[layout.nodes[name].island]
        assert first <= row < first + height


def test_a_line_of_descent_keeps_its_row() -> None:
    layout = lineage_layout([entry("a", 0), entry("b", 0), entry("c", 1, "b"), entry("d", 2, "c"), entry("e", 2, "c")])
    rows = {name: row for name, (_, row) in layout.places.items()}
    assert rows["b"] == rows["c"] == rows["d"] != rows["a"]
    assert rows["e"] != rows["d"]
    assert layout.edges == (("b", "c"), ("c", "d"), ("c", "e"))


def test_cycles_and_missing_parents_do_no_harm() -> None:
    layout = lineage_layout([entry("a", 0, "b"), entry("b", 1, "a"), entry("c", 2, "c", "gone"), entry("d", 3, "gone")])
    assert len(layout.places) == 4
    assert ("c", "c") in layout.edges
    assert not layout.crossings


def test_a_migration_is_drawn_on_the_island_it_reached() -> None:
    arrival = Placement(run="r", island=1, niche="m0c0d0l0", kernel="a", generation=2, via="migration")
    layout = lineage_layout([entry("a", 0), entry("b", 0, island=1), entry("c", 2, "b", island=1)], [arrival])
    ((kernel, (column, row)),) = layout.migrations
    assert (kernel, column) == ("a", 1)
    assert layout.lanes[1][0] <= row < layout.lanes[1][0] + layout.lanes[1][1]
    assert (column, row) not in layout.places.values()


def test_a_run_without_kernels_has_an_empty_layout() -> None:
    layout = lineage_layout([])
    assert (layout.columns, layout.rows) == (0, 0)
