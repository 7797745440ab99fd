"""A Gaussian process over the settings of a kernel's tunables: which untried setting promises most.

The log speedup of a setting is a sum of what each value is worth alone and of what all values are worth together. Both
parts have the kernel exp(-relevance x distance), where the values of a tunable lie in order (numbers) or equally far
apart (words). How much each tunable matters is fitted by the marginal likelihood (Rasmussen and Williams 2006, sections
2.2 and 5.4.1). The score is the expected improvement over the best setting (Jones, Schonlau and Welch 1998).

Slow settings have less weight, as more noise. Speeds of one skeleton span a factor of a hundred, most of it between
naive settings and all others, and a fit of the whole span would lose the difference between the best and the next best.

Settings that were measured on another problem count, too: the two problems' functions have a correlation, which is the
`closeness` of the other problem.

Where settings failed, a second process over ones and zeros says how likely a setting is to pass. The expected
improvement is multiplied by that chance (Gelbart, Snoek and Adams 2014, section 3).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: A setting that is slower than the best by this much in log speedup (a factor of two) has weight 1/e.
REACH = 0.7
#: Standard deviation of the log speedup of one measurement of a fast setting; and the least of the whole function.
NOISE, LEAST_SPREAD = 0.05, 0.05
#: Relevance of a tunable before there are data, and those that are tried for each: exp(-relevance) is the correlation
#: between its most distant values.
RELEVANCE, RELEVANCES = 1.5, (0.2, 6.0, 30.0)
#: Share of the variance that the values have alone, of speeds and of passes; the rest is what they have together. What
#: fails does so for one value more often than what is fast is so for one.
ALONE, ALONE_TO_PASS = 0.1, 0.5
#: Samples that are fitted, the fastest, and tunables whose relevance is fitted, those with the largest share: a fit
#: takes some 10 ms, for a judge that takes a second.
SAMPLES, FITTED = 128, 16
#: Settings that passed, and settings that failed, of which the chance to pass is fitted, the newest.
MOST_FITTED = SAMPLES // 2
#: Least share of a tunable: what a profile leaves out may matter.
LEAST_SHARE = 0.05
#: Least chance of a setting to pass: what failed nearby may have failed for another reason.
LEAST_CHANCE = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One measured setting."""

    #: Name -> value. A tunable that had no effect is left out.
    setting: Mapping[str, str]
    #: Over eager, > 0.
    speedup: float
    #: The other problem on which it was measured; "" for the run's own.
    problem: str = ""
    #: Correlation with the run's own problem, 0 to 1.
    closeness: float = 1.0


class Surrogate:
    """What the samples say about all settings.

    Args:
        choices: tunable name -> its values.
        samples: what was measured.
        shares: tunable name -> the share of the kernel's time that it can change, 0 to 1; 1 where nothing is known.
        alone: share of the variance that the values have alone.
    """

    def __init__(
        self,
        choices: Mapping[str, Sequence[str]],
        samples: Sequence[Sample],
        shares: Mapping[str, float] | None = None,
        *,
        alone: float = ALONE,
    ) -> None:
        self._choices, self._alone = choices, alone
        self._tables = [_distances(values) for values in choices.values()]
        known = [max(LEAST_SHARE, (shares or {}).get(name, 1.0)) for name in choices]
        self._share = np.array(known) / sum(known)
        self._relevance = np.full(len(known), RELEVANCE)
        # The fastest of each problem: another problem's must not displace the run's own.
        ranked = sorted(samples, key=lambda one: (one.problem != "", -one.speedup))
        self._samples = ranked[:SAMPLES]
        self._settings = self._indices([one.setting for one in self._samples])
        self._closeness = np.array([one.closeness if one.problem else 1.0 for one in self._samples])
        self._problems = np.array([one.problem for one in self._samples], dtype=object)
        self._logs, weights = self._centred()
        self._variance = LEAST_SPREAD**2
        if len(weights):
            self._variance = max(self._variance, float(np.average(self._logs**2, weights=weights)))
        self._noise = np.diag(NOISE**2 / weights)
        self._between = np.outer(self._closeness, self._closeness)
        self._between[self._problems[:, None] == self._problems[None, :]] = 1.0
        if len(weights) > 2:
            self._fit()
        covariance = self._covariance(self._settings, self._settings) * self._between
        self._factor = np.linalg.cholesky(covariance + self._noise)
        self._solution = np.linalg.solve(self._factor.T, np.linalg.solve(self._factor, self._logs))
        own = self._problems == ""
        self._best = float((covariance @ self._solution)[own].max()) if own.any() else 0.0

    def expected(self, settings: Sequence[Mapping[str, str]]) -> Array:
        """The log speedup that each setting is expected to have."""
        cross = self._covariance(self._indices(settings), self._settings) * self._closeness
        return self._level + np.asarray(cross @ self._solution)

    def scores(self, settings: Sequence[Mapping[str, str]]) -> Array:
        """Expected improvement of each setting over the best of the run's own, in log speedup."""
        cross = self._covariance(self._indices(settings), self._settings) * self._closeness
        mean = cross @ self._solution
        explained = np.linalg.solve(self._factor, cross.T)
        spread = np.sqrt(np.maximum(self._variance - np.sum(explained**2, axis=0), 1e-10))
        ahead = (mean - self._best) / spread
        below = np.array([math.erfc(-value / math.sqrt(2)) / 2 for value in ahead])
        return np.asarray(spread * (ahead * below + np.exp(-(ahead**2) / 2) / math.sqrt(2 * math.pi)))

    def _centred(self) -> tuple[Array, Array]:
        """Log speedups less the weighted mean of their problem, and weights, which are 1 for the fastest of each."""
        logs = np.array([math.log(one.speedup) for one in self._samples])
        weights = np.ones(len(logs))
        self._level = 0.0
        for problem in set(self._problems):
            at = self._problems == problem
            weights[at] = np.exp((logs[at] - logs[at].max()) / REACH)
            level = np.average(logs[at], weights=weights[at])
            logs[at] -= level
            self._level = float(level) if problem == "" else self._level
        return logs, weights

    def _indices(self, settings: Sequence[Mapping[str, str]]) -> NDArray[np.intp]:
        """[setting, tunable]: the index of its value; one past the last where it has none."""
        places = [(name, {value: at for at, value in enumerate(values)}) for name, values in self._choices.items()]
        rows = [[at.get(setting.get(name, ""), len(at)) for name, at in places] for setting in settings]
        return np.array(rows, dtype=np.intp).reshape(len(settings), len(places))

    def _covariance(self, first: NDArray[np.intp], second: NDArray[np.intp]) -> Array:
        alone, together = np.zeros((len(first), len(second))), np.zeros((len(first), len(second)))
        for column, (table, relevance, share) in enumerate(
            zip(self._tables, self._relevance, self._share, strict=True)
        ):
            far = relevance * table[first[:, column, None], second[None, :, column]]
            alone += share * np.exp(-far)
            together += self._scale(share) * far
        return self._combined(alone, together)

    def _scale(self, share: float) -> float:
        """A tunable with a small share matters less together with others, too."""
        return min(1.0, float(share * len(self._share)))

    def _combined(self, alone: Array, together: Array) -> Array:
        return self._variance * (self._alone * alone + (1 - self._alone) * np.exp(-together))

    def _fit(self) -> None:
        """Choose the relevance of each tunable, one after another; a step recomputes what that tunable adds."""
        alone = np.zeros_like(self._between)
        together = np.zeros_like(self._between)
        terms: dict[int, Array] = {}
        for column, table in enumerate(self._tables):
            far = terms[column] = table[self._settings[:, column, None], self._settings[None, :, column]]
            alone += self._share[column] * np.exp(-RELEVANCE * far)
            together += self._scale(self._share[column]) * RELEVANCE * far
        best = self._likelihood(alone, together)
        for column in np.argsort(-self._share, kind="stable")[:FITTED]:
            far, share = terms[column], self._share[column]
            if not far.any():
                continue  # all samples have the same value
            options = [(best, RELEVANCE, alone, together)]
            for relevance in RELEVANCES:
                changed = (
                    alone + share * (np.exp(-relevance * far) - np.exp(-RELEVANCE * far)),
                    together + self._scale(share) * (relevance - RELEVANCE) * far,
                )
                options.append((self._likelihood(*changed), relevance, *changed))
            best, self._relevance[column], alone, together = max(options, key=lambda option: option[0])

    def _likelihood(self, alone: Array, together: Array) -> float:
        """Log marginal likelihood, up to a constant."""
        factor = np.linalg.cholesky(self._combined(alone, together) * self._between + self._noise)
        whitened = np.linalg.solve(factor, self._logs)
        return float(-whitened @ whitened / 2 - np.log(np.diag(factor)).sum())


def chances_to_pass(
    choices: Mapping[str, Sequence[str]],
    passed: Sequence[Mapping[str, str]],
    failed: Sequence[Mapping[str, str]],
    *,
    alone: float = ALONE_TO_PASS,
) -> Callable[[Sequence[Mapping[str, str]]], Array]:
    """A function of settings: how likely each is to pass, `LEAST_CHANCE` to 1; always 1 where none failed.

    Args:
        choices: tunable name -> its values.
        passed: settings that the judge accepted, the newest last; as many are fitted as of the others.
        failed: settings that it did not accept, likewise.
        alone: share of the variance that the values have alone.
    """
    if not failed:
        return lambda settings: np.ones(len(settings))
    known = [Sample(setting=one, speedup=math.e) for one in passed[-MOST_FITTED:]]
    known += [Sample(setting=one, speedup=1.0) for one in failed[-MOST_FITTED:]]
    surrogate = Surrogate(choices, known, alone=alone)
    return lambda settings: np.clip(surrogate.expected(settings), LEAST_CHANCE, 1.0)


def _distances(values: Sequence[str]) -> Array:
    """Between values, 0 to 1, and in the last row and column to none: numbers lie in order, words equally far apart."""
    size = len(values)
    found = np.ones((size + 1, size + 1))
    np.fill_diagonal(found, 0.0)
    try:
        order = np.argsort(np.argsort([float(value) for value in values]))
    except ValueError:
        return found
    found[:size, :size] = np.abs(order[:, None] - order[None, :]) / max(size - 1, 1)
    return found
