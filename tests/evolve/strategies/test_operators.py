from collections import Counter
from random import Random

import pytest

from kbevolve.archive.records import Operator
from kbevolve.evolve.state.memory import PRIORS
from kbevolve.evolve.strategies.operators import FLOOR, FLOWING, STALE, STUCK, choose_operator, operator_shares
from kbevolve.islands.credit.credit import Credit

WITH_MODEL = (Operator.MUTATE, Operator.REWRITE, Operator.CROSS, Operator.REPAIR, Operator.TUNE)


def test_steps_become_larger_and_values_are_tuned_when_nothing_better_comes() -> None:
    first = operator_shares(WITH_MODEL, stalled=0, tune_share=0.3)
    last = operator_shares(WITH_MODEL, stalled=10 * STALE, tune_share=0.3)
    assert first == pytest.approx(FLOWING)
    assert last == pytest.approx({**{one: 0.7 * share for one, share in STUCK.items()}, Operator.TUNE: 0.3})
    half = operator_shares(WITH_MODEL, stalled=STALE // 2, tune_share=0.3)
    assert first[Operator.REWRITE] < half[Operator.REWRITE] / (1 - half[Operator.TUNE]) < STUCK[Operator.REWRITE]
    assert Operator.TUNE not in operator_shares(WITH_MODEL, stalled=50, tune_share=0)
    assert set(operator_shares(WITH_MODEL, stalled=10 * STALE, tune_share=1)) == {Operator.TUNE}


def test_an_offline_run_tunes() -> None:
    assert operator_shares((Operator.TUNE, Operator.CROSS), stalled=7, tune_share=0.0) == {
        Operator.TUNE: 0.8,
        Operator.CROSS: 0.2,
    }


def drawn(credit: Credit, **options: bool) -> Counter[Operator]:
    shares = operator_shares(WITH_MODEL, stalled=STALE, tune_share=0.3)
    return Counter(choose_operator(shares, credit, Random(seed), **options) for seed in range(2000))


def test_what_pays_is_done_more_and_nothing_is_given_up() -> None:
    credit = Credit(priors=PRIORS)
    for _ in range(12):
        credit = credit.with_child(str(Operator.CROSS), 0.3).with_child(str(Operator.MUTATE), None)
    counts, before = drawn(credit), drawn(Credit(priors=PRIORS))
    assert counts[Operator.CROSS] > 3 * before[Operator.CROSS]
    assert counts[Operator.MUTATE] < 0.7 * before[Operator.MUTATE]
    assert min(counts.values()) > 4 * FLOOR * 0.04 * 2000, "each keeps its part of the floor"
    exploring = drawn(credit, exploring=True)
    assert exploring[Operator.CROSS] < counts[Operator.CROSS]


def test_shares_alone_decide_where_that_is_wanted() -> None:
    credit = Credit(priors=PRIORS).with_child(str(Operator.CROSS), 1.0)
    counts = drawn(credit, by_credit=False)
    assert counts[Operator.MUTATE] / 2000 == pytest.approx(0.7 * STUCK[Operator.MUTATE], abs=0.04)
    assert counts[Operator.CROSS] / 2000 == pytest.approx(0.7 * STUCK[Operator.CROSS], abs=0.04)
