import math
import statistics
from random import Random

import pytest

from kbevolve.islands.credit.posterior import Belief, Tally


def tally(gains: list[float | None]) -> Tally:
    found = Tally()
    for gain in gains:
        found = found.with_child(gain)
    return found


def after(gains: list[float | None], belief: Belief | None = None) -> Belief:
    return (belief or Belief()).after(tally(gains))


def test_many_children_are_believed_more_than_the_prior() -> None:
    gains = [0.1 + 0.05 * math.sin(number) for number in range(400)]
    belief = after([*gains, *[None] * 100])
    assert belief.validity == pytest.approx(0.8, abs=0.01)
    assert belief.gain == pytest.approx(statistics.fmean(gains), abs=0.002)
    assert belief.spread == pytest.approx(statistics.pstdev(gains), rel=0.1)


def test_the_order_of_children_does_not_matter() -> None:
    gains: list[float | None] = [0.3, None, -0.2, 0.05, None, 0.0]
    one, other = after(gains), after(gains[::-1])
    assert one.valid == other.valid
    assert one.gain == pytest.approx(other.gain)
    assert one.scale == pytest.approx(other.scale)


def mean_draw(belief: Belief) -> float:
    rng = Random(1)
    return statistics.fmean(belief.draw(rng) for _ in range(4000))


def test_draws_agree_with_what_children_brought_and_narrow_with_them() -> None:
    rng = Random(1)
    few, many = after([0.1, None]), after([0.1, None, 0.05, 0.15] * 100)
    draws = {belief: [belief.draw(rng) for _ in range(4000)] for belief in (few, many)}
    # Three quarters are valid and gain a tenth, with a spread so small that next to none of them loses.
    assert statistics.fmean(draws[many]) == pytest.approx(0.075, rel=0.05)
    assert statistics.pstdev(draws[many]) < 0.2 * statistics.pstdev(draws[few])
    assert min(map(min, draws.values())) >= 0


def test_a_loss_is_worth_nothing_and_no_less() -> None:
    assert 0 <= mean_draw(after([-0.5, -0.4, -0.6] * 20)) < 0.005
    assert 0 <= mean_draw(after([None] * 60)) < 0.005
    assert mean_draw(after([0.8, -0.8] * 30)) > 0.1, "who gains half of the time is worth more than who never moves"


def test_a_miracle_counts_as_much_as_a_large_gain() -> None:
    assert after([20.0]).gain == after([math.log(8.0)]).gain
    assert after([-20.0]).gain == -after([20.0]).gain


def test_what_fades_comes_back_to_the_prior() -> None:
    prior, results = Belief(gain=0.02), tally([0.5] * 30)
    belief = prior.after(results)
    assert prior.after(results.faded(1.0)) == belief
    faded = prior.after(results.faded(0.97**400))
    assert faded.gain == pytest.approx(prior.gain, abs=1e-3)
    assert faded.children == pytest.approx(prior.children, abs=1e-3)
    once = prior.after(results.faded(0.5))
    assert prior.children < once.children < belief.children
    assert prior.gain < once.gain < belief.gain


def test_a_tally_teaches_what_its_children_did_one_by_one() -> None:
    gains: list[float | None] = [0.3, None, -0.2, 0.05, None, 0.0, 9.0]
    one, other = Belief(), after(gains)
    for gain in gains:
        one = after([gain], one)
    for name in ("valid", "invalid", "gain", "weight", "shape", "scale"):
        assert getattr(other, name) == pytest.approx(getattr(one, name)), name
    assert Belief().after(tally(gains).faded(0.5)).children == pytest.approx(2 + len(gains) / 2)
    assert Belief().after(Tally()) == Belief()


def test_a_belief_at_most_so_strong_expects_the_same() -> None:
    sure = after([0.1, None, 0.05, 0.15] * 50)
    unsure = sure.at_most(4)
    assert unsure.children == pytest.approx(4)
    assert (unsure.validity, unsure.gain) == pytest.approx((sure.validity, sure.gain))
    assert unsure.spread == pytest.approx(sure.spread)
    assert unsure.improvement == pytest.approx(sure.improvement)
    draws = {belief: [belief.draw(Random(seed)) for seed in range(2000)] for belief in (sure, unsure)}
    assert statistics.pstdev(draws[unsure]) > 2 * statistics.pstdev(draws[sure])
    weak = Belief().at_most(4)
    assert (weak.children, weak.weight, weak.scale) == pytest.approx((2, 1, 0.02)), "a weak one stays as it is"
