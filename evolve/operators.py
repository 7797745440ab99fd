"""Which operator makes the next child: weights, and what each needs of its parents."""

from collections.abc import Collection, Mapping
from random import Random

from kbevolve.archive.records import Operator, Verdict

#: Shares among the operators that ask a model (SEARCH section 4: edits .35, rewrites .30, crossings .10).
MODEL_WEIGHTS: Mapping[Operator, float] = {Operator.MUTATE: 0.35, Operator.REWRITE: 0.30, Operator.CROSS: 0.10}
#: Part of a run in which whole rewrites count double: wide first, deep later (SEARCH section 4).
EXPLORING = 0.25
#: Shares of an offline run; crossing needs two elites of one skeleton and soon repeats itself, so it gets less.
OFFLINE_WEIGHTS: Mapping[Operator, float] = {Operator.TUNE: 0.8, Operator.CROSS: 0.2}
#: Verdicts that a repair turn can mend: the failure has a message, and the idea has not been refuted by a clock.
MENDABLE = frozenset({Verdict.REFUSED, Verdict.BUILD_FAILED, Verdict.CRASHED, Verdict.WRONG})


def operator_weights(available: Collection[Operator], *, tune_share: float, progress: float) -> dict[Operator, float]:
    """Weight of each available operator.

    Args:
        available: the operators that have a proposer.
        tune_share: share of TUNE in a run with a model.
        progress: part of the run that is over, 0 to 1.
    """
    if Operator.MUTATE not in available:
        return {operator: weight for operator, weight in OFFLINE_WEIGHTS.items() if operator in available}
    weights = {operator: weight for operator, weight in MODEL_WEIGHTS.items() if operator in available}
    if progress < EXPLORING and Operator.REWRITE in weights:
        weights[Operator.REWRITE] *= 2
    total = sum(weights.values())
    weights = {operator: weight / total * (1 - tune_share) for operator, weight in weights.items()}
    return {**weights, Operator.TUNE: tune_share}


def choose_operator(weights: Mapping[Operator, float], rng: Random) -> Operator:
    """One operator by weight."""
    operators = list(weights)
    return rng.choices(operators, [weights[operator] for operator in operators])[0]
