"""Some cases of each part of the fuzz benchmark; docs/results has the runs of thousands."""

import json
import random

import pytest

from benchmarks.fuzz.__main__ import PARTS, fuzz
from benchmarks.fuzz.orders import order
from benchmarks.fuzz.sources import hostile

#: Cases by default, and of the slow test.
COUNTS = {"replies": (25, 250), "sources": (60, 600), "orders": (15, 120)}


def test_a_seed_gives_the_same_case() -> None:
    for seed in range(20):
        assert hostile(random.Random(seed)) == hostile(random.Random(seed))
        assert repr(order(random.Random(seed))) == repr(order(random.Random(seed)))
    assert len({hostile(random.Random(seed)) for seed in range(100)}) > 90


@pytest.mark.parametrize(
    "part", [pytest.param(part, marks=pytest.mark.slow if part == "replies" else ()) for part in PARTS]
)
@pytest.mark.slow
def test_the_judge_outlives_some_cases(part: str) -> None:
    _holds(part, count=COUNTS[part][0], seed=1_000_000)


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_the_judge_outlives_many_cases(part: str) -> None:
    _holds(part, count=COUNTS[part][1], seed=2_000_000)


def _holds(part: str, *, count: int, seed: int) -> None:
    found = fuzz(part, count=count, seed=seed)
    assert found["cases"] == count
    # Other tests share this process and its temporary directory: what they hold is no fault of the cases.
    found["left_over"].pop("in the temporary directory", None)
    assert not found["left_over"], json.dumps(found)
