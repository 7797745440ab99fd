"""Launches are named as the limit, or as worth an attempt, where the host needs long for them."""

from typing import Any

import pytest

from kbevolve.archive.parts import grouped
from kbevolve.archive.records import Evaluation, Launch, LaunchCost, Verdict
from kbevolve.evaluators.feedback.bottleneck import SM, bottleneck
from kbevolve.evaluators.feedback.launching import launches_matter
from kbevolve.evaluators.feedback.message import performance
from kbevolve.evaluators.feedback.profile import read_profile, with_counters

#: Seven kernels that the device runs in 21 µs.
SHORT = [{"name": "mine", "microseconds": 21.0, "launches": 7.0, "registers": 32}]


def cost(host_us: float, **facts: Any) -> LaunchCost:
    return LaunchCost(
        host_ms=host_us / 1e3, reference_host_ms=0.02, kernelbench_ms=0.05, kernelbench_reference_ms=0.1,
        kernelbench_speedup=2.0, **facts,
    )  # fmt: skip


@pytest.mark.parametrize(("host_us", "first", "last"), [(38.0, True, False), (21.0, True, False), (6.0, False, True)])
def test_the_host_is_the_limit_or_a_lever(host_us: float, first: bool, last: bool) -> None:
    found = read_profile(SHORT, time_ms=0.022, launch_cost=cost(host_us))
    assert found.launch_cost == cost(host_us, launches=7.0)
    assert found.bottleneck.startswith("launch-bound: the host takes longer") is first
    assert ("the host takes 29 % of the device's time to launch a call" in found.bottleneck) is last
    assert "cached launchers" in found.bottleneck


def test_what_limits_the_device_is_named_beside_the_host() -> None:
    found = read_profile(SHORT, time_ms=0.022, launch_cost=cost(38.0))
    counted = with_counters(found, {"DRAM busy": 10.0, SM: 80.0}, time_ms=0.022)
    assert counted.bottleneck.startswith("launch-bound: the host")
    assert "; compute-bound: multiprocessors are busy 80 %" in counted.bottleneck


def test_launches_that_hardly_matter_are_not_named() -> None:
    found = read_profile(SHORT, time_ms=0.022, launch_cost=cost(4.0))
    assert "launch" not in found.bottleneck
    assert not launches_matter(found.launches, 0.022, None)
    assert launches_matter((), 0.022, cost(6.0)), "without a profile the call's time is the device's"


def test_gaps_between_kernels_are_named_once() -> None:
    launches = (Launch(name="mine", share=1.0, microseconds=3.0, launches=7.0, registers=32),)
    line = bottleneck(launches, time_ms=0.1, launch_cost=cost(80.0))
    assert line.startswith("launch-bound: kernels run 21 µs of 100 µs in 7 launches;")
    assert line.count("launch-bound") == 1
    assert "the host" not in line


def test_all_launches_are_counted_also_those_that_a_profile_leaves_out() -> None:
    reported = [{"name": f"k{number}", "microseconds": 1.0, "launches": 2.0, "registers": 8} for number in range(40)]
    found = read_profile(reported, time_ms=0.05, launch_cost=cost(200.0))
    assert len(found.launches) == 12
    assert found.launch_cost is not None
    assert found.launch_cost.launches == 80


def test_a_prompt_has_the_hosts_time_beside_the_devices() -> None:
    def lines(reported: Any) -> list[str]:
        profile = read_profile(reported, time_ms=0.022, launch_cost=cost(38.0))
        found = grouped(
            Evaluation, kernel="k", problem="p", device="cuda/H", precision="fp32", verdict=Verdict.CORRECT,
            time_ms=0.022, profile=profile,
        )  # fmt: skip
        return performance(found)

    assert "The host needs 38 µs to launch the 7 kernels of a call; the device needs 21 µs." in lines(SHORT)
    assert "The host needs 38 µs to launch a call; the device needs 22 µs." in lines([])
