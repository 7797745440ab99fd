import json
from collections import Counter

import pytest

from benchmarks.soak.faults import FAULTS, draw_children
from benchmarks.soak.leaks import Holdings, growth_mb
from benchmarks.soak.soak import soak


def test_a_seed_gives_the_same_faults_and_moments() -> None:
    assert draw_children(50, 3) == draw_children(50, 3)
    assert draw_children(50, 3) != draw_children(50, 4)
    found = draw_children(2000, 0)
    assert len({child.kernel.id for child in found}) == 2000
    counts = Counter(child.fault.name for child in found)
    assert set(counts) == {fault.name for fault in FAULTS}
    assert 400 < counts["honest"] < 800


def test_what_exceeds_its_limit_is_reported() -> None:
    before = Holdings(
        descriptors=6, threads=4, shared_mappings=0, descendants=0, files=0, shared_memory=1, rss_mb=300.0
    )
    after = Holdings(descriptors=8, threads=4, shared_mappings=1, descendants=0, files=0, shared_memory=1, rss_mb=900.0)
    assert after.beyond(before) == {"descriptors": 2, "shared_mappings": 1}
    assert before.beyond(after) == {}
    assert growth_mb([100.0, 200.0, 200.0, 260.0]) == 60.0
    assert growth_mb([300.0, 200.0, 200.0, 200.0]) == 0.0


@pytest.mark.slow
def test_a_judge_outlives_its_children() -> None:
    """One child of every fault, four at once."""
    found = soak(len(FAULTS), seed=0, width=4)
    assert found["ok"], json.dumps(found)
    assert {name: sum(counts.values()) for name, counts in found["verdicts"].items()} == {
        fault.name: 1 for fault in FAULTS
    }
