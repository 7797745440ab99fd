"""Writes a run of a million kernels in bulk, row for row what a search leaves."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from benchmarks.engine.workload import ISLANDS, SKELETONS, bulk_kernel, evaluation_of, open_run, start
from kbevolve.archive import rows
from kbevolve.archive.identity import normalise
from kbevolve.archive.records import (
    Birth,
    BirthState,
    Kernel,
    Operator,
    Placement,
    Run,
    Verdict,
)
from kbevolve.archive.store import Archive
from kbevolve.islands.niches import describe
from kbevolve.islands.source.canonical import canonical_form, canonical_id, form_id

#: Placeholder for the number of a kernel; no skeleton holds it otherwise.
_STAND_IN = 987654321
#: Rows in one transaction of the bulk path.
BATCH = 20_000


def bulk_rows(run: Run, kernels: int) -> Iterator[tuple[str, rows.Row]]:
    """What a run of so many kernels leaves, one child an island and generation; its parents are the start.

    A tuple of a table and a row, in an order that references allow.
    """
    for number in range(len(SKELETONS)):
        assert normalise(bulk_kernel(number).source) == bulk_kernel(number).source
    # Forms differ in the number alone, as their kernels do: to parse a million of them would take minutes.
    forms = [canonical_form(SKELETONS[at].format(number=_STAND_IN)) for at in range(len(SKELETONS))]
    niches = [describe(bulk_kernel(number)) for number in range(len(SKELETONS))]
    first = start()
    best: list[dict[str, float]] = [{} for _ in range(ISLANDS)]

    def child(kernel: Kernel, niche: str, form: str, generation: int, island: int) -> Iterator[tuple[str, rows.Row]]:
        found = evaluation_of(kernel)
        seed = generation == 0
        birth = Birth(
            run=run.id,
            generation=generation,
            island=island,
            slot=0,
            operator=Operator.SEED if seed else Operator.TUNE,
            state=BirthState.CREATED,
            parents=() if seed else (first.id,),
            kernel=kernel.id,
            canonical_hash=form,
            note="start" if seed else "child",
        )
        if not seed or island == 0:
            yield "kernels", rows.to_row(kernel)
            yield "evaluations", {**rows.to_row(found), "at": ""}
        yield "births", {**rows.birth_row(birth), "at": ""}
        fitness = found.timing.speedup_low or 0.0
        if found.verdict is Verdict.CORRECT and fitness > best[island].get(niche, -1.0):
            best[island][niche] = fitness
            placement = Placement(
                run=run.id, island=island, niche=niche, kernel=kernel.id, generation=generation, via="birth"
            )
            yield "placements", rows.to_row(placement)

    for island in range(ISLANDS):
        yield from child(first, describe(first), canonical_id(first.source), 0, island)
    yield "generation_ends", {"run": run.id, "generation": 0, "at": ""}
    for number in range(kernels):
        generation, island = 1 + number // ISLANDS, number % ISLANDS
        form = form_id(forms[number % len(forms)].replace(str(_STAND_IN), str(number)))
        yield from child(bulk_kernel(number), niches[number % len(niches)], form, generation, island)
        if island == ISLANDS - 1:
            yield "generation_ends", {"run": run.id, "generation": generation, "at": ""}


def fill(path: Path, kernels: int) -> None:
    """Write a run of so many kernels into a new archive."""
    with Archive(path) as archive:
        run = open_run(archive)
        connection = archive._connection
        connection.rows("pragma cache_size = -1000000")  # a GB, here only: keys of kernels are random
        everything = bulk_rows(run, kernels)
        while batch := list(islice(everything, BATCH)):
            tables: dict[str, list[rows.Row]] = {}
            for table, row in batch:
                tables.setdefault(table, []).append(row)
            with connection.transaction():
                for table in ("kernels", "births", "evaluations", "placements", "generation_ends"):
                    connection.insert_all(table, tables.get(table, []))
