"""A soak of the judge on the CPU: thousands of children, of which half fail in some way, several at once.

    python -m benchmarks.soak --children 2000 --seed 0

Children, faults and the moments of kills from outside follow from the seed. Prints one JSON object last; "ok" says
whether every verdict was right, every child has exactly one evaluation in the archive, nothing was left over
(processes, files, shared memory, descriptors, threads) and the judge's memory stayed flat.
"""

import argparse
import json
import sys

from benchmarks.soak.soak import soak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--children", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--width", type=int, default=2, help="children judged at once")
    parser.add_argument("--quiet", action="store_true", help="the JSON object only")
    options = parser.parse_args()
    found = soak(options.children, seed=options.seed, width=options.width, verbose=not options.quiet)
    print(json.dumps(found))
    sys.exit(0 if found["ok"] else 1)


if __name__ == "__main__":
    main()
