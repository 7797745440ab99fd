"""Optuna's samplers and Kernel Tuner's strategies, with the defaults that they document.

Both are optional: `pip install -e '.[tuners]'`. Settings that a landscape does not have are restrictions to
Kernel Tuner; Optuna has no such thing before an evaluation, so one that it asks for costs nothing. A failure counts as
the slowest speed so far.
"""

import random
import warnings
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.tuners.task import TuningTask
from kbevolve.evolve.simulation.landscape import Landscape

#: Kernel Tuner's cost of a setting that fails is its own; Optuna is given the slowest speed so far, or this at first.
WORST = -3.0


def optuna_search(task: TuningTask, sampler: str) -> None:
    """A search by Optuna's sampler ``TPE`` or ``GP``, with its defaults."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    made: Any = {"TPE": optuna.samplers.TPESampler, "GP": optuna.samplers.GPSampler}[sampler](seed=task.seed)
    study = optuna.create_study(direction="maximize", sampler=made)
    names = [gene.name for gene in task.landscape.genes]
    study.enqueue_trial(dict(zip(names, task.start, strict=True)))
    slowest = WORST
    while True:
        trial = study.ask()
        # Values are in order, so a whole number says more than a category.
        setting = tuple(trial.suggest_int(gene.name, 0, gene.choices - 1) for gene in task.landscape.genes)
        speed = task.measure(setting)
        slowest = slowest if speed is None else min(slowest, speed)
        study.tell(trial, slowest if speed is None else speed)


def kernel_tuner_search(task: TuningTask, strategy: str) -> None:
    """A search by one of Kernel Tuner's strategies, with its defaults."""
    from kernel_tuner import util
    from kernel_tuner.interface import Options, strategy_map
    from kernel_tuner.runners.runner import Runner
    from kernel_tuner.searchspace import Searchspace

    class LandscapeRunner(Runner):  # type: ignore[misc]
        """Measures by the task."""

        dev = SimpleNamespace(max_threads=10**9)

        def get_device_info(self) -> SimpleNamespace:
            return self.dev

        def get_environment(self, tuning_options: Any) -> dict[str, Any]:
            return {}

        def run(self, parameter_space: Sequence[Any], tuning_options: Any) -> list[dict[str, Any]]:
            results = []
            for element in parameter_space:
                speed = task.measure(tuple(map(int, element)))
                time = util.RuntimeFailedConfig() if speed is None else float(np.exp(-speed))
                error = {"__error__": time} if speed is None else {}
                results.append({**dict(zip(names, element, strict=True)), "time": time, **error})
            return results

    random.seed(task.seed)
    np.random.seed(task.seed)
    warnings.simplefilter("ignore")
    names = [gene.name for gene in task.landscape.genes]
    space = _searchspace(Searchspace, task.landscape)
    options: dict[str, Any] = {"max_fevals": task.budget}
    if strategy not in _NO_START:
        options["x0"] = list(task.start)
    tuning = Options(
        strategy_options=Options(options), objective=["time"], objective_higher_is_better=[False], verbose=False,
        budget=util.TuningBudget(max_fevals=10**9), cache={}, metrics=None, eps=1.0, max_fevals=task.budget,
        tune_params=space.tune_params, restrictions=space.restrictions, searchspace=space, seed=task.seed,
        strategy=strategy, snap=True, scaling=False,
    )  # fmt: skip
    strategy_map[strategy].tune(space, LandscapeRunner(), tuning)


#: Strategies that choose their first settings themselves.
_NO_START = ("bayes_opt", "hybrid_vndx")
_SPACES: dict[str, Any] = {}


def _searchspace(make: Any, landscape: Landscape) -> Any:
    """A landscape's space; kept, because to enumerate it takes seconds."""
    if landscape.name not in _SPACES:
        values = {gene.name: list(range(gene.choices)) for gene in landscape.genes}

        def exists(setting: dict[str, Any]) -> bool:
            return landscape.exists(tuple(setting[name] for name in values))

        _SPACES[landscape.name] = make(values, exists, 10**9)
    return _SPACES[landscape.name]


def random_search(task: TuningTask) -> None:
    """Settings at random."""
    rng = random.Random(f"{task.seed}/random")
    task.measure(task.start)
    while True:
        task.measure(tuple(rng.randrange(gene.choices) for gene in task.landscape.genes))
