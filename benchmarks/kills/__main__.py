"""Kills runs with SIGKILL at random moments, enters them again until they end, and compares what they left.

    python -m benchmarks.kills --kills 100 --seed 0

A run asks a scripted model on 127.0.0.1 and a judge that is simulated, and goes through everything else as ever: three
islands, overlapping generations, repairs, duplicates, contests. Each session is killed after a random time, of at most
half of what the undisturbed run took. Prints one JSON object last; "ok" says whether every run ended in the
archive of the undisturbed one, lost no answer that the search had, and sent no request again whose answer the archive
held.
"""

import argparse
import json
import sys

from benchmarks.kills.kills import experiment


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quiet", action="store_true", help="the JSON object only")
    options = parser.parse_args()
    found = experiment(options.kills, options.seed, verbose=not options.quiet)
    print(json.dumps(found.to_json()))
    sys.exit(0 if found.ok else 1)


if __name__ == "__main__":
    main()
