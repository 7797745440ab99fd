"""Fuzzes the judge on the CPU: malformed replies of a worker, hostile kernel files, mutated build orders.

    python -m benchmarks.fuzz replies --count 10000 --seed 0

Case number n follows from seed + n alone, so a run that was stopped goes on with a later seed. Prints one JSON object
last; "ok" says whether each case got a verdict, the judge then judges an honest kernel as before, its memory never
passed 1 GB, and nothing was left over (processes, files, shared memory, descriptors).
"""

import argparse
import json
import sys
import time
from collections import Counter

from benchmarks.fuzz import orders, replies, sources
from benchmarks.fuzz.holdings import Watch

PARTS = {"replies": replies.run, "sources": sources.run, "orders": orders.run}
#: Cases between two lines of progress.
_TOLD_EVERY = 250


def fuzz(part: str, *, count: int, seed: int, verbose: bool = False) -> dict[str, object]:
    """Run the cases of a part; what was found, with "ok" for whether all of it is as it must be."""
    outcomes: Counter[str] = Counter()
    slowest = (0.0, -1)
    started = last = time.perf_counter()
    with Watch() as watch:
        for case, outcome in PARTS[part](range(seed, seed + count)):
            now = time.perf_counter()
            slowest, last = max(slowest, (round(now - last, 2), case)), now
            outcomes[outcome] += 1
            watch.look()
            if verbose and not (case - seed + 1) % _TOLD_EVERY:
                print(
                    f"{case + 1 - seed:6} cases, next seed {case + 1}: {dict(outcomes)}, {watch.peak_mb:.0f} MB",
                    flush=True,
                )
    found = {
        "cases": outcomes.total(),
        "seconds": round(time.perf_counter() - started, 1),
        "outcomes": dict(outcomes.most_common()),
        "slowest_case": {"seconds": slowest[0], "seed": slowest[1]},
        "peak_mb": round(watch.peak_mb, 1),
        "left_over": watch.left_over,
    }
    return {"part": part, "seed": seed, **found, "ok": outcomes.total() == count and watch.ok}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=list(PARTS))
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    found = fuzz(options.part, count=options.count, seed=options.seed, verbose=True)
    print(json.dumps(found))
    sys.exit(0 if found["ok"] else 1)


if __name__ == "__main__":
    main()
