"""What the surrogate says of settings that nothing has measured."""

import math
from collections.abc import Mapping
from itertools import product
from random import Random

import numpy as np
import pytest

from kbevolve.evolve.proposers.tuning.surrogate import LEAST_CHANCE, Sample, Surrogate, chances_to_pass

CHOICES = {"TILE": ("8", "16", "32", "64"), "MODE": ('"a"', '"b"'), "UNROLL": ("1", "2", "4", "8")}


def speed(setting: Mapping[str, str]) -> float:
    """Best at a tile of 32, in mode b, unrolled four times, which pays in mode b only."""
    tile = -0.3 * abs(math.log2(int(setting["TILE"])) - 5)
    unroll = -0.2 * abs(math.log2(int(setting["UNROLL"])) - 2)
    return math.exp(tile + (0.4 + unroll if setting["MODE"] == '"b"' else 0.0))


EVERYTHING = [dict(zip(CHOICES, values, strict=True)) for values in product(*CHOICES.values())]
BEST = max(EVERYTHING, key=speed)


def measured(*settings: Mapping[str, str], problem: str = "", closeness: float = 1.0) -> list[Sample]:
    return [Sample(setting=one, speedup=speed(one), problem=problem, closeness=closeness) for one in settings]


def rank_of_best(samples: list[Sample]) -> int:
    """How many settings that were not measured score higher than the best one."""
    untried = [one for one in EVERYTHING if one not in [sample.setting for sample in samples if not sample.problem]]
    scores = dict(zip(map(str, untried), Surrogate(CHOICES, samples).scores(untried), strict=True))
    return sum(score > scores[str(BEST)] for score in scores.values())


def test_the_best_setting_is_found_without_trying_all() -> None:
    samples = measured(EVERYTHING[0])
    for _ in range(14):
        surrogate = Surrogate(CHOICES, samples)
        untried = [one for one in EVERYTHING if one not in [sample.setting for sample in samples]]
        samples += measured(untried[int(surrogate.scores(untried).argmax())])
    assert BEST in [sample.setting for sample in samples]


def test_settings_of_a_close_problem_say_where_to_begin() -> None:
    start = measured(EVERYTHING[0])
    others = [one for one in EVERYTHING if one["UNROLL"] in ("1", "4")]
    assert rank_of_best(start + measured(*others, problem="other", closeness=0.9)) <= 2
    assert rank_of_best(start) > 2


def test_a_distant_problem_does_not() -> None:
    others = measured(*(one for one in EVERYTHING if one["UNROLL"] in ("1", "4")), problem="other", closeness=0.0)
    assert rank_of_best(measured(EVERYTHING[0]) + others) > 2


def test_a_tunable_with_a_small_share_promises_less() -> None:
    start = {"TILE": "8", "MODE": '"a"', "UNROLL": "1"}
    scores = Surrogate(CHOICES, measured(start), {"TILE": 0.9, "MODE": 0.9, "UNROLL": 0.02}).scores(
        [start | {"TILE": "64"}, start | {"UNROLL": "8"}]
    )
    assert scores[0] > 1.2 * scores[1]


@pytest.mark.parametrize("speeds", [[1.0, 1.0, 1.0], [1e-6, 1.0, 1e6]])
def test_any_speeds_have_scores(speeds: list[float]) -> None:
    samples = [Sample(setting=one, speedup=fast) for one, fast in zip(EVERYTHING, speeds, strict=False)]
    scores = Surrogate(CHOICES, samples).scores(EVERYTHING)
    assert all(math.isfinite(score) and score >= 0 for score in scores)
    assert Surrogate(CHOICES, []).scores(EVERYTHING[:2]).shape == (2,)


def test_what_fails_with_one_value_is_expected_to_fail_with_it() -> None:
    seen = EVERYTHING[::3]
    failed = [one for one in seen if one["MODE"] == '"b"']
    passed = [one for one in seen if one["MODE"] != '"b"']
    untried = [one for one in EVERYTHING if one not in seen]
    found = chances_to_pass(CHOICES, passed, failed)(untried)
    likely = [chance for one, chance in zip(untried, found, strict=True) if one["MODE"] != '"b"']
    unlikely = [chance for one, chance in zip(untried, found, strict=True) if one["MODE"] == '"b"']
    assert min(likely) > 0.8
    assert max(unlikely) < 0.2
    assert found.min() >= LEAST_CHANCE
    assert found.max() <= 1.0


def test_where_nothing_failed_everything_may_pass() -> None:
    assert chances_to_pass(CHOICES, EVERYTHING[:2], [])(EVERYTHING[2:]).tolist() == [1.0] * (len(EVERYTHING) - 2)


def test_where_all_failed_each_setting_is_unlikely_and_none_is_excluded() -> None:
    found = chances_to_pass(CHOICES, [], EVERYTHING[:5])(EVERYTHING[5:])
    assert found.min() >= LEAST_CHANCE
    assert found.max() < 0.5


def test_many_that_passed_do_not_displace_what_failed() -> None:
    passed = [one | {"ROUND": str(number)} for number in range(20) for one in EVERYTHING if one["MODE"] == '"a"']
    failed = [one | {"ROUND": "0"} for one in EVERYTHING[:20] if one["MODE"] == '"b"']
    choices = {**CHOICES, "ROUND": tuple(map(str, range(20)))}
    assert chances_to_pass(choices, passed, failed)(failed).max() < 0.2


def test_among_many_tunables_either_of_two_values_is_found_to_fail() -> None:
    """As in networks whose products or convolutions are not accurate enough with corrections in fp8."""
    rng, names = Random(0), [f"T{number}" for number in range(20)]
    drawn = [{name: rng.choice("01") for name in names} for _ in range(220)]
    seen, untried = drawn[:20], drawn[20:]
    fails = [one["T3"] == "1" or one["T8"] == "1" for one in drawn]
    failed = [one for one, bad in zip(seen, fails, strict=False) if bad]
    passed = [one for one, bad in zip(seen, fails, strict=False) if not bad]
    found = chances_to_pass(dict.fromkeys(names, ("0", "1")), passed, failed)(untried)
    bad = np.array(fails[20:])
    above = np.mean([chance > other for chance in found[~bad] for other in found[bad]])
    assert above > 0.88  # 0.86 where single values count for a tenth
