"""How well the tuner foresees which settings fail: the kernels of archives in turn, each foretold from those before it.

    python -m benchmarks.chances ARCHIVE ... [--own] [--alone 0.5]

For each run of which three kernels with tunables passed and three failed, and for all of them: the mean loss of
information and of squares over the kernels after the fourth, the share of failed kernels that had been given a chance
above a half, and that of kernels that passed. `--own` learns from kernels of the same skeleton alone, `--alone` sets
the share that single values have (`tuning.surrogate.ALONE_TO_PASS`).
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from kbevolve.archive.records import Kernel, Verdict
from kbevolve.archive.store import Archive
from kbevolve.evolve.proposers.tuning.proposer import settings_alike
from kbevolve.evolve.proposers.tuning.surrogate import ALONE_TO_PASS, LEAST_CHANCE, chances_to_pass
from kbevolve.evolve.proposers.tuning.tunables import declared, skeleton

#: Kernels of a run before the first that is foretold; and the least that passed and failed.
BEFORE, LEAST = 4, 3


Judged = Sequence[tuple[Kernel, bool]]


def judged_kernels(archive: Archive) -> Iterator[tuple[str, Judged]]:
    """For each run its problem, and its kernels with tunables in the order in which they were judged: did they pass?"""
    for run in map(archive.runs.get, archive.runs.ids()):
        kernels, found = archive.runs.kernels(run.id), archive.runs.evaluations(run.id).values()
        ranked = sorted(found, key=lambda one: one.execution.started_at)
        judged = [(kernels[one.kernel], one.verdict is Verdict.CORRECT) for one in ranked]
        yield run.problem_name, [(kernel, right) for kernel, right in judged if len(declared(kernel.source)) > 1]


def foretold(judged: Judged, *, own: bool, alone: float = ALONE_TO_PASS) -> list[tuple[float, bool]]:
    """For each kernel after the first ones its chance to pass, and whether it did; none before something failed."""
    found = []
    for at in range(BEFORE, len(judged)):
        if all(right for _, right in judged[:at]):
            continue
        (kernel, passed), shape = judged[at], skeleton(judged[at][0].source)
        known = [one for one in judged[:at] if not own or skeleton(one[0].source) == shape]
        before = [settings_alike([one for one, right in known if right is it], kernel.source) for it in (True, False)]
        choices = {one.name: one.choices for one in declared(kernel.source)}
        (chance,) = chances_to_pass(choices, *before, alone=alone)(settings_alike([kernel], kernel.source))
        found.append((float(np.clip(chance, LEAST_CHANCE, 1 - LEAST_CHANCE)), passed))
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
    parser.add_argument("--alone", type=float, default=ALONE_TO_PASS)
    options = parser.parse_args()
    everything: list[tuple[float, bool]] = []
    print("| problem | kernels | information | squares | failed, above a half | passed, above a half |")
    print("|---" * 6 + "|")
    for path in options.archive:
        with Archive(path, create=False, read_only=True) as archive:
            for problem, judged in judged_kernels(archive):
                if LEAST <= sum(right for _, right in judged) <= len(judged) - LEAST:
                    rows = foretold(judged, own=options.own, alone=options.alone)
                    everything += rows
                    print(f"| {problem} | {summary(rows)} |")
    print(f"| all | {summary(everything)} |")


if __name__ == "__main__":
    main()
