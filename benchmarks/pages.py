"""How long the pages of `kbevolve browse` take in an archive of many kernels.

    python -m benchmarks.pages [--kernels 10400]

Milliseconds of processor time, without the network: the first view after the run has written one more attempt, and the
next one; medians of five. The last line is what the first view of a run takes longer, which reads it whole. The archive
is that of `benchmarks.engine`.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

from benchmarks.engine.bulk import fill
from benchmarks.engine.workload import bulk_kernel, evaluation_of, start
from kbevolve.archive.records import Birth, BirthState, Operator, Run
from kbevolve.archive.store import Archive
from kbevolve.evolve.web.app import create_app
from kbevolve.evolve.web.snapshot import Snapshot

#: The pages, with the id of the run and of a kernel in place of names.
PAGES = (
    "/",
    "/runs/{run}",
    "/runs/{run}/lineage",
    "/runs/{run}/story",
    "/runs/{run}/kernels",
    "/runs/{run}/ideas",
    "/kernels/{kernel}",
    "/search?q=BLOCK",
)


def write(archive: Archive, run: Run, number: int) -> None:
    """Write what a search writes for a child: an attempt, and later the verdict of its kernel."""
    kernel = bulk_kernel(number)
    birth = Birth(
        run=run.id,
        generation=number,
        island=0,
        slot=0,
        operator=Operator.TUNE,
        state=BirthState.CREATED,
        parents=(start().id,),
        kernel=kernel.id,
        note="child",
    )
    archive.add_birth(birth, kernel=kernel)
    archive.add_evaluation(evaluation_of(kernel))


def main() -> None:
    """One row a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", type=int, default=10_400, help="kernels in the archive")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "full.db")
        fill(path, asked.kernels)
        with Archive(path) as writer, Archive(path, read_only=True) as archive:
            run = archive.runs.get("latest")
            names = {"run": run.id, "kernel": archive.runs.summary(run).best_kernel}
            client = create_app(Snapshot(archive)).test_client()
            numbers = count(asked.kernels)
            print("| page | first view after a write, ms | next view, ms |\n|---|---|---|")
            for page in PAGES:
                view = partial(client.get, page.format(**names))
                assert view().status_code == 200  # its template is compiled once
                views: list[tuple[float, float]] = []
                for _ in range(5):
                    write(writer, run, next(numbers))
                    views.append((_seconds(view), _seconds(view)))
                first, after = (statistics.median(found) * 1e3 for found in zip(*views, strict=True))
                print(f"| {page} | {first:.0f} | {after:.0f} |")
            whole = statistics.median(_seconds(partial(archive.outline, run)) for _ in range(5))
            print(f"\nThe first view of a run: {whole * 1e3:.0f} ms more.")


def _seconds(action: Callable[[], object]) -> float:
    begin = time.process_time()
    action()
    return time.process_time() - begin


if __name__ == "__main__":
    main()
