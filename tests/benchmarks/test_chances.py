"""Kernels of an archive are foretold from those before them, also from those of another skeleton."""

from benchmarks.chances import foretold, summary
from kbevolve.archive.records import Kernel
from tests.evolve.doubles import kernel


def test_what_failed_in_one_skeleton_is_foretold_for_another() -> None:
    judged = [
        (kernel(UNROLL=unroll, TILE=tile, PACK=pack), unroll != 8)
        for tile in (16, 32)
        for unroll in (1, 8, 2, 4)
        for pack in (0, 1)
    ]
    others = [(Kernel.from_source(one.source + "\nOTHER = 1\n"), right) for one, right in judged]
    shared, own = (foretold([*judged, *others], own=own)[-len(others) :] for own in (False, True))
    surprises = [sum(abs(chance - right) for chance, right in rows[:4]) for rows in (shared, own)]
    assert surprises[0] < 0.5 * surprises[1]
    assert summary([(0.9, True), (0.2, False), (0.6, False)]) == "3 | 0.415 | 0.137 | 0.50 | 1.00"
