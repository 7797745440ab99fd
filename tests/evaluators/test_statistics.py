import math
from random import Random

import pytest

from kbevolve.evaluators.statistics import hodges_lehmann, round_log_ratio, speedup_of


def test_the_estimate_is_the_median_of_pairwise_means() -> None:
    assert hodges_lehmann([1.0]) == 1.0
    assert hodges_lehmann([1.0, 3.0]) == 2.0
    # Pairs: 1, 2, 5.5, 3, 6.5, 10 -> median of (1, 2, 3, 5.5, 6.5, 10).
    assert hodges_lehmann([1.0, 3.0, 10.0]) == 4.25


def test_one_disturbed_round_moves_the_estimate_little() -> None:
    calm = [math.log(2.0)] * 9
    assert speedup_of([*calm, math.log(0.2)], Random(1)).estimate == pytest.approx(2.0, rel=1e-6)


def test_a_round_is_the_ratio_of_medians() -> None:
    assert round_log_ratio([4.0, 4.0, 100.0], [1.0, 2.0, 3.0]) == pytest.approx(math.log(2.0))


def test_the_interval_holds_the_estimate_and_is_reproducible() -> None:
    rng = Random(5)
    ratios = [rng.gauss(0.3, 0.05) for _ in range(10)]
    speedup = speedup_of(ratios, Random(7))
    assert speedup == speedup_of(ratios, Random(7))
    assert speedup.low < speedup.estimate < speedup.high
    assert speedup.low > 1.2
    assert speedup.high < 1.5


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = Random(11)
    hits = 0
    for trial in range(60):
        speedup = speedup_of([rng.gauss(0.1, 0.02) for _ in range(10)], Random(trial))
        hits += speedup.low <= math.exp(0.1) <= speedup.high
    # 95 % in the limit; a bootstrap over 10 rounds is known to cover a little less.
    assert hits >= 50


def test_three_rounds_are_enough_for_an_interval() -> None:
    speedup = speedup_of([0.1, 0.2, 0.3], Random(0))
    assert math.exp(0.1) <= speedup.low <= speedup.estimate <= speedup.high <= math.exp(0.3)
