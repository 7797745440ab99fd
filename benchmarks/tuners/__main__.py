"""The tuner of tunables beside Optuna's samplers and Kernel Tuner's strategies, at equal evaluations.

    python -m benchmarks.tuners --seeds 30 --budgets 50,100 --out tuners.jsonl
    python -m benchmarks.tuners --landscape space.json --tuners ours,optuna-TPE --out tuners.jsonl

Needs no GPU; the libraries are those of `pip install -e '.[tuners]'`. All begin with the landscape's start, where they
take one, and a setting has the same noise for all. `ours-4-ahead` proposes a child before the verdicts on the last four
are known, as a run with `search.lookahead` does; `forgets-failures` learns nothing from settings that failed
(`python -m benchmarks.landscapes fail` makes landscapes with such). The figure is the true speed of what measured best,
over the fastest that there is. Searches that are in the file already are not repeated, so a long comparison can be
interrupted. A table has the seeds that all of its tuners have done. Kernel Tuner enumerates a space, so the ladders are
too large for it.
"""

import argparse
import json
import os
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.throughput import lines
from benchmarks.tuners.libraries import kernel_tuner_search, optuna_search, random_search
from benchmarks.tuners.ours import our_search
from benchmarks.tuners.task import Spent, TuningTask
from kbevolve.evolve.simulation.measured import packaged
from kbevolve.evolve.simulation.tournament import find_landscape, standard_error

OURS = "ours"
STRATEGIES = ("greedy_ils", "genetic_algorithm", "diff_evo", "bayes_opt", "simulated_annealing", "hybrid_vndx")
TUNERS: Mapping[str, Callable[[TuningTask], None]] = {
    OURS: our_search,
    **{f"{OURS}-{ahead}-ahead": partial(our_search, lookahead=ahead) for ahead in (2, 4, 5)},
    f"{OURS}-4-ahead-forgets-failures": partial(our_search, lookahead=4, learns_failures=False),
    "random": random_search,
    **{f"optuna-{name}": partial(optuna_search, sampler=name) for name in ("TPE", "GP")},
    **{f"kernel-tuner-{name}": partial(kernel_tuner_search, strategy=name) for name in STRATEGIES},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--landscape", action="append", help="a name or a file; default: all that come with kbevolve")
    default = ",".join(name for name in TUNERS if "-ahead" not in name)
    parser.add_argument("--tuners", default=default, help="some of the tuners, with commas between them")
    parser.add_argument("--seeds", type=int, default=30, help="searches of each tuner")
    parser.add_argument("--budgets", default="50,100", help="evaluations at which the best is looked at")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes")
    parser.add_argument("--out", type=Path, default=Path("tuners.jsonl"), help="one line a search")
    options = parser.parse_args()
    names, tuners = options.landscape or list(packaged()), options.tuners.split(",")
    budgets = sorted(int(word) for word in options.budgets.split(","))
    known = {_key(line) for line in lines.read(options.out)}
    tasks = [(name, tuner, seed, budgets) for seed in range(options.seeds) for tuner in tuners for name in names]
    missing = [task for task in tasks if (find_landscape(task[0]).name, *task[1:3]) not in known]
    with ProcessPoolExecutor(options.jobs) as processes, options.out.open("a", encoding="utf-8") as out:
        for line in processes.map(_searched, missing):
            print(json.dumps(line), file=out, flush=True)
    found = {_key(line): line for line in lines.read(options.out)}
    for name in names:
        _print(find_landscape(name).name, tuners, options.seeds, budgets, found)


def _key(line: Mapping[str, Any]) -> tuple[str, str, int]:
    return line["landscape"], line["tuner"], line["seed"]


def _searched(asked: tuple[str, str, int, Sequence[int]]) -> dict[str, Any]:
    name, tuner, seed, budgets = asked
    task = TuningTask(landscape=find_landscape(name), seed=seed, budget=budgets[-1])
    with suppress(Spent):
        TUNERS[tuner](task)
    delivered = {str(budget): round(task.delivered(budget), 5) for budget in budgets}
    failed = sum(speed is None for speed in task.found.values())
    spent = {"spent": len(task.found), "failed": failed}
    return {"landscape": task.landscape.name, "tuner": tuner, "seed": seed, **spent, **delivered}


def _print(
    name: str, tuners: Sequence[str], seeds: int, budgets: Sequence[int], found: Mapping[Any, Mapping[str, Any]]
) -> None:
    """A table; `-`: behind the first by more than two standard errors of the difference, `+`: ahead by as much."""
    done = [seed for seed in range(seeds) if all((name, tuner, seed) in found for tuner in tuners)]
    print(f"\n## {name}, {len(done)} searches\n\n| tuner | {' | '.join(map(str, budgets))} | failed |")
    print("|---" * (2 + len(budgets)) + "|")
    for tuner in tuners if done else ():
        cells = [_cell([found[name, one, seed][str(budget)] for seed in done] for one in (tuner, tuners[0]))
                 for budget in budgets]  # fmt: skip
        failed = statistics.fmean(found[name, tuner, seed].get("failed", 0) for seed in done)
        print(f"| {tuner} | {' | '.join(cells)} | {failed:.1f} |")


def _cell(values: Iterable[list[float]]) -> str:
    own, first = values
    lead = [one - other for one, other in zip(first, own, strict=True)]
    clear = abs(statistics.fmean(lead)) > 2 * standard_error(lead)
    mark = (" -" if statistics.fmean(lead) > 0 else " +") if clear else ""
    return f"{statistics.fmean(own):.3f} ± {standard_error(own):.3f}{mark}"


if __name__ == "__main__":
    main()
