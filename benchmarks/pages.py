"""How long the pages of `kbevolve browse` take in an archive of many kernels.

    python -m benchmarks.pages [--kernels 10400]

Milliseconds of processor time, without the network: the first view after another process has written to the archive,
and the next one; medians of five. The archive is that of `benchmarks.engine`.
"""

import argparse
import sqlite3
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.engine.bulk import fill
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


def write(path: Path) -> None:
    """Change the archive as another process would, without a row that pages read."""
    with sqlite3.connect(path) as connection:
        connection.execute("create table if not exists touched (number)")
        connection.execute("insert into touched values (1)")
    connection.close()


def main() -> None:
    """One row a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", type=int, default=10_400, help="kernels in the archive")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "full.db")
        fill(path, asked.kernels)
        with Archive(path, read_only=True) as archive:
            run = archive.runs.get("latest")
            names = {"run": run.id, "kernel": archive.runs.summary(run).best_kernel}
            client = create_app(Snapshot(archive)).test_client()
            print("| page | first view after a write, ms | next view, ms |\n|---|---|---|")
            for page in PAGES:
                views: list[tuple[float, float]] = []
                for _ in range(5):
                    write(path)
                    times = [time.process_time()]
                    for _view in range(2):
                        assert client.get(page.format(**names)).status_code == 200
                        times.append(time.process_time())
                    views.append((times[1] - times[0], times[2] - times[1]))
                first, after = (statistics.median(found) * 1e3 for found in zip(*views, strict=True))
                print(f"| {page} | {first:.0f} | {after:.0f} |")


if __name__ == "__main__":
    main()
