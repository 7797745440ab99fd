"""Which operator makes the next child: by fixed shares, or by what each operator has brought in this run."""

from collections.abc import Collection, Mapping
from random import Random

from kbevolve.archive.records import Operator
from kbevolve.islands.credit.credit import Credit

#: Shares among the operators that ask a model, of draws that follow no credit: while improvements come, and once
#: `STALE` kernels were judged without one. Techniques come first: a parameter of a technique that is replaced next was
#: tuned for nothing. A stagnating run needs larger steps. All numbers here but the offline ones were chosen on the
#: ladders of `simulation.ladders`.
FLOWING: Mapping[Operator, float] = {Operator.MUTATE: 0.7, Operator.REWRITE: 0.3}
STUCK: Mapping[Operator, float] = {Operator.MUTATE: 0.40, Operator.REWRITE: 0.53, Operator.CROSS: 0.07}
STALE = 30
#: Share of each operator whatever it has brought; and while a run explores.
FLOOR, EXPLORING_FLOOR = 0.15, 0.2
#: Shares of an offline run; crossing needs two elites of one skeleton and soon repeats itself, so it gets less.
OFFLINE: Mapping[Operator, float] = {Operator.TUNE: 0.8, Operator.CROSS: 0.2}


def operator_shares(available: Collection[Operator], *, stalled: int, tune_share: float) -> dict[Operator, float]:
    """Share of each available operator among draws that follow no credit; those without one are left out.

    Args:
        available: the operators that have a proposer.
        stalled: kernels judged since the last improvement.
        tune_share: TUNE's share in a run with a model, once it is stuck; 0 for a run that tunes nothing.
    """
    if Operator.MUTATE not in available:
        return {operator: share for operator, share in OFFLINE.items() if operator in available}
    stuck = min(1.0, stalled / STALE)
    shares = {one: (1 - stuck) * FLOWING.get(one, 0.0) + stuck * STUCK[one] for one in STUCK if one in available}
    tuned = tune_share * stuck if Operator.TUNE in available else 0.0
    total = sum(shares.values())
    shares = {operator: share / total * (1 - tuned) for operator, share in shares.items()}
    return {operator: share for operator, share in {**shares, Operator.TUNE: tuned}.items() if share > 0}


def choose_operator(
    shares: Mapping[Operator, float], credit: Credit, rng: Random, *, by_credit: bool = True, exploring: bool = False
) -> Operator:
    """One of the operators.

    Args:
        shares: of the draws that follow no credit; at least one.
        credit: what each has brought.
        rng: the only source of randomness.
        by_credit: False for a run whose operators have their shares and nothing else.
        exploring: whether more draws than usual follow no credit.
    """
    floor = 1.0 if not by_credit else EXPLORING_FLOOR if exploring else FLOOR
    named = {str(operator): share for operator, share in shares.items()}
    return Operator(credit.choose(named, rng, floor=floor))
