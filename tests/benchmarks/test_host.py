"""The simulated host agrees with what was measured, and its queues behave as queues must."""

import statistics
from dataclasses import replace

import pytest

from benchmarks.host.model import Service, simulated

MEASURED = Service()


def an_hour(service: Service, gpus: int, *, hosts: int = 1, children: int = 30, seeds: int = 6) -> float:
    return statistics.fmean(
        simulated(service, hosts=hosts, gpus=gpus, children=children, seed=seed).an_hour for seed in range(seeds)
    )


def test_one_and_two_gpus_are_as_they_were_measured() -> None:
    """4896 and 9324 children an hour, 1.90 times (docs/results/2026-11-22-several-gpus-h200.md)."""
    one, two = an_hour(MEASURED, 1), an_hour(MEASURED, 2)
    assert one == pytest.approx(4896, rel=0.07)
    assert two / one == pytest.approx(1.90, abs=0.08)


def test_many_gpus_of_a_host_are_limited_by_its_lock() -> None:
    lock = MEASURED.start_lock + MEASURED.trials_lock + MEASURED.end_lock
    found = simulated(MEASURED, hosts=1, gpus=16, children=60, seed=0)
    # Some workers were ready before the first child.
    assert 0.9 * 3600 / lock < found.an_hour < 1.3 * 3600 / lock
    assert found.lock_busy > 0.95
    assert found.wait > 1.0


def test_without_the_lock_gpus_do_not_disturb_each_other() -> None:
    free = replace(MEASURED, start_lock=0.0, trials_lock=0.0, end_lock=0.0)
    one = an_hour(free, 1, children=200, seeds=2)
    assert an_hour(free, 8, children=200, seeds=2) / one == pytest.approx(8.0, rel=0.03)


def test_hosts_share_no_lock() -> None:
    slow = replace(MEASURED, start_lock=0.3)
    assert an_hour(slow, 1, hosts=4, children=60) > 1.6 * an_hour(slow, 4, children=60)


def test_a_gpu_is_never_busier_than_its_timing_allows() -> None:
    found = simulated(replace(MEASURED, timing=1.0), hosts=1, gpus=1, children=50, seed=3)
    assert found.an_hour < 3600
    assert found.build > MEASURED.build, "builds are paused while a kernel is timed"


def test_the_same_seed_gives_the_same() -> None:
    assert simulated(MEASURED, hosts=2, gpus=2, children=10, seed=5) == simulated(
        MEASURED, hosts=2, gpus=2, children=10, seed=5
    )
