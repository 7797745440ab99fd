from collections import Counter
from random import Random

from kbevolve.islands.credit.credit import Credit
from kbevolve.islands.credit.posterior import Belief


def played(payoffs: dict[str, tuple[float, float]], turns: int, *, seed: int, floor: float = 0.0) -> Counter[str]:
    """How often each arm was chosen; its share of valid children and their mean gain are the payoffs."""
    rng, credit, counts = Random(seed), Credit(), Counter[str]()
    for turn in range(turns):
        arm = credit.choose(dict.fromkeys(payoffs, 1.0), Random(f"{seed}/{turn}"), floor=floor)
        counts[arm] += 1
        valid, gain = payoffs[arm]
        credit = credit.with_child(arm, rng.gauss(gain, 0.05) if rng.random() < valid else None)
    return counts


def test_the_arm_that_pays_is_found() -> None:
    payoffs = {"good": (0.7, 0.10), "poor": (0.7, 0.0), "broken": (0.1, 0.10), "losing": (0.9, -0.2)}
    counts = Counter[str]()
    for seed in range(20):
        counts += played(payoffs, 100, seed=seed)
    assert counts["good"] > 0.55 * 2000
    assert min(counts.values()) >= 20, "every arm is tried in every run"


def test_each_arm_keeps_its_floor() -> None:
    hopeless = Belief(valid=1, invalid=500, gain=-2, weight=200, shape=100, scale=0.1)
    arms = {"good": Belief(valid=500, invalid=1, gain=0.5, weight=500, shape=250, scale=0.1)}
    arms |= dict.fromkeys(["a", "b", "c"], hopeless)
    counts = Counter(
        Credit(priors=arms).choose(dict.fromkeys(arms, 1.0), Random(turn), floor=0.05) for turn in range(4000)
    )
    assert all(0.035 < counts[arm] / 4000 < 0.065 for arm in "abc")


def test_blind_draws_follow_the_shares() -> None:
    counts = Counter(Credit().choose({"a": 8, "b": 1, "c": 1}, Random(turn), floor=1.0) for turn in range(2000))
    assert 0.75 < counts["a"] / 2000 < 0.85


def test_the_same_generator_chooses_the_same() -> None:
    arms = {name: Belief(gain=0.01 * number) for number, name in enumerate("abcdef")}
    credit, shares = Credit(priors=arms), dict.fromkeys(arms, 1.0)
    assert [credit.choose(shares, Random(turn)) for turn in range(50)] == [
        credit.choose(dict(reversed(shares.items())), Random(turn)) for turn in range(50)
    ]
