"""A small model of the worth of each tunable value, learnt from the settings measured so far.

Bayesian linear regression of log speedup on one-hot values (Rasmussen and Williams 2006, section 2.1.1), with a draw
from the posterior instead of its mean: Thompson sampling explores untried values without a schedule to tune.

Slow settings have less weight. Speeds of one skeleton span a factor of a hundred, most of it between naive settings and
all others. A fit of the whole span loses the difference between the best and the next best, and a value that first left
the naive settings would look unbeatable. On L2/gemm_bias_relu (two CPU cores, 100 children, 2026-11-21) the unweighted
fit kept the first inner loop that worked and ended at 0.73 times eager's speed, the weighted fit at 2.7 times.
"""

import math
from collections.abc import Mapping, Sequence
from random import Random

import numpy as np
from numpy.typing import NDArray

#: Prior standard deviation of the worth of one value, in log speedup: a factor of about 1.5 either way.
PRIOR_SD = 0.4
#: Standard deviation of what an additive model does not explain: interactions between tunables, and noise.
NOISE_SD = 0.25
#: A setting that is slower than the best by this much in log speedup (a factor of two) has weight 1/e.
REACH = 0.7


class Surrogate:
    """One draw from the posterior over the worth of every tunable value.

    Args:
        choices: tunable name -> its values.
        settings: settings measured so far, each name -> value.
        speedups: speedup of each, > 0.
        rng: source of the draw.
    """

    def __init__(
        self,
        choices: Mapping[str, Sequence[str]],
        settings: Sequence[Mapping[str, str]],
        speedups: Sequence[float],
        rng: Random,
    ) -> None:
        self._columns = {
            (name, value): index
            for index, (name, value) in enumerate((name, value) for name, values in choices.items() for value in values)
        }
        size = len(self._columns)
        design = np.stack([self._row(setting) for setting in settings]) if settings else np.zeros((0, size))
        logs = np.array([math.log(speedup) for speedup in speedups])
        weights = np.exp((logs - logs.max(initial=-np.inf)) / REACH)
        centre = float(np.average(logs, weights=weights)) if len(logs) else 0.0
        weighted = design.T * weights
        precision = weighted @ design / NOISE_SD**2 + np.eye(size) / PRIOR_SD**2
        mean = np.linalg.solve(precision, weighted @ (logs - centre) / NOISE_SD**2)
        # With L the Cholesky factor of the precision, L^-T z has the posterior's covariance.
        noise = np.array([rng.gauss(0.0, 1.0) for _ in range(size)])
        deviation = np.linalg.solve(np.linalg.cholesky(precision).T, noise)
        self._worth: NDArray[np.floating] = mean + deviation

    def score(self, setting: Mapping[str, str]) -> float:
        """Drawn log speedup of a setting, up to a constant."""
        return float(self._row(setting) @ self._worth)

    def _row(self, setting: Mapping[str, str]) -> NDArray[np.float64]:
        row = np.zeros(len(self._columns))
        for item in setting.items():
            if item in self._columns:
                row[self._columns[item]] = 1.0
        return row
