"""How well the tuner foresees which settings fail: the kernels of archives in turn, each foretold from those before it.

    python -m benchmarks.chances ARCHIVE ... [--own] [--alone 0.5]

For each problem of which three kernels with tunables passed and three failed, and for all of them: the mean loss of
information and of squares over the kernels after the fourth, the share of failed kernels that had been given a chance
above a half, and that of kernels that passed. `--own` learns from kernels of the same skeleton alone, `--alone` sets
the share that single values have (`tuning.surrogate.ALONE_TO_PASS`).
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from kbevolve.archive.records import Kernel, Verdict
from kbevolve.archive.store import Archive
from kbevolve.evolve.proposers.tuning import surrogate
from kbevolve.evolve.proposers.tuning.proposer import settings_alike
from kbevolve.evolve.proposers.tuning.tunables import declared, skeleton

#: Kernels of a problem before the first that is foretold; and the least that passed and failed.
BEFORE, LEAST = 4, 3


def foretold(judged: Sequence[tuple[Kernel, bool]], *, own: bool) -> list[tuple[float, bool]]:
    """For each kernel after the first ones its chance to pass, and whether it did; none before something failed."""
    found = []
    for at in range(BEFORE, len(judged)):
        kernel, passed = judged[at]
        shape = skeleton(kernel.source)
        known = [one for one in judged[:at] if not own or skeleton(one[0].source) == shape]
        if all(right for _, right in judged[:at]):
            continue
        settings = [
            settings_alike([one for one, right in known if right is wanted], kernel.source) for wanted in (True, False)
        ]
        choices = {one.name: one.choices for one in declared(kernel.source)}
        (chance,) = surrogate.chances_to_pass(choices, *settings)(settings_alike([kernel], kernel.source))
        found.append((float(np.clip(chance, surrogate.LEAST_CHANCE, 1 - surrogate.LEAST_CHANCE)), passed))
    return found


def summary(foretelling: Sequence[tuple[float, bool]]) -> str:
    """A row of the table."""
    chance, passed = np.array([one for one, _ in foretelling]), np.array([right for _, right in foretelling])
    information = -np.log(np.where(passed, chance, 1 - chance)).mean()
    square = ((chance - passed) ** 2).mean()
    above = [f"{(chance[at] > 0.5).mean():.2f}" if at.any() else "" for at in (~passed, passed)]
    return f"{len(passed)} | {information:.3f} | {square:.3f} | {above[0]} | {above[1]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", nargs="+", type=Path)
    parser.add_argument("--own", action="store_true", help="learn from kernels of the same skeleton alone")
    parser.add_argument("--alone", type=float, default=surrogate.ALONE_TO_PASS)
    options = parser.parse_args()
    surrogate.ALONE_TO_PASS = options.alone  # type: ignore[misc]
    everything: list[tuple[float, bool]] = []
    print(
        "| problem | kernels | information | squares | failed, above a half | passed, above a half |\n"
        + "|---" * 6
        + "|"
    )
    for path in options.archive:
        with Archive(path) as archive:
            for run in map(archive.runs.get, archive.runs.ids()):
                found, kernels_of_run = archive.runs.evaluations(run.id), archive.runs.kernels(run.id)
                ranked = sorted(found.values(), key=lambda one: one.execution.started_at)
                kernels = [(kernels_of_run[one.kernel], one.verdict is Verdict.CORRECT) for one in ranked]
                judged = [(kernel, right) for kernel, right in kernels if len(declared(kernel.source)) > 1]
                if min(sum(right is wanted for _, right in judged) for wanted in (True, False)) >= LEAST:
                    rows = foretold(judged, own=options.own)
                    everything += rows
                    print(f"| {run.problem_name} | {summary(rows)} |")
    print(f"| all | {summary(everything)} |")


if __name__ == "__main__":
    main()
