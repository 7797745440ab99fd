"""How fast a run went: figures that can be worked out by hand."""

from typing import Any

import pytest

from kbevolve.archive.parts import changed, grouped
from kbevolve.archive.records import Birth, BirthState, Evaluation, Operator, Run, Verdict
from kbevolve.archive.throughput import OVERHEAD, PAUSE_SECONDS, Throughput, throughput_of

#: The run's beginning, in seconds since 1970.
START = 1_795_000_000.0
RUN = Run(id="r", problem_name="L1/x", problem="p", device="gpu", seed=0, settings="{}", created="2026-11-18T11:06:40Z")


def judged(at: float, seconds: float, /, place: str = "", **phases: float) -> Evaluation:
    """An evaluation that began `at` seconds after the run."""
    return grouped(Evaluation,
        kernel=f"k{at}{place}", problem="p", device="gpu", precision="fp32", verdict=Verdict.CORRECT,
        started_at=START + at, seconds=seconds, phases=phases, device_instance=place,
    )  # fmt: skip


def throughput(*evaluations: Evaluation, births: tuple[Birth, ...] = ()) -> Throughput:
    return throughput_of(RUN, births, evaluations)


def test_the_beginning_of_the_run_is_what_these_tests_take_it_for() -> None:
    from datetime import datetime

    assert datetime.fromisoformat(RUN.created).timestamp() == START


def test_rates_are_of_the_wall_time() -> None:
    found = throughput(judged(10, 4), judged(12, 6), judged(30, 10))
    assert (found.judged, found.wall) == (3, 30)
    assert found.children_per_hour == pytest.approx(360)
    assert found.side_by_side == pytest.approx(20 / 30)
    assert found.idle == pytest.approx(12 / 30)
    assert found.longest_gap == 12


def test_phases_are_listed_in_their_order_with_the_time_in_none_of_them() -> None:
    evaluations = [judged(index, 10, read=0.5, build=float(index), timing=2.0) for index in range(1, 6)]
    evaluations.append(judged(9, 1, read=0.5, **{"a phase of later": 0.25}))
    phases = {phase.name: phase for phase in throughput(*evaluations).phases}
    assert list(phases) == ["read", "build", "timing", "a phase of later", OVERHEAD]
    build = phases["build"]
    assert (build.children, build.mean, build.median, build.p90, build.total) == (5, 3, 3, 5, 15)
    assert phases["read"].children == 6
    assert phases[OVERHEAD].total == pytest.approx(5 * 7.5 - 15 + 0.25)
    assert sum(phase.share for phase in phases.values()) == pytest.approx(1)
    assert build.share == pytest.approx(15 / 51)


def test_a_device_is_busy_where_any_evaluation_uses_it_and_what_overlaps_counts_once() -> None:
    """Trials at 2-5 and 3-6, timing at 5-7 and 8-9; 0-10 is the wall time."""
    first = judged(0, 8, build=2, trials=3, timing=2)
    second = judged(1, 9, build=2, trials=3, gate=2, timing=1)
    (device,) = throughput(first, second).devices
    assert (device.device, device.device_instance, device.children) == ("gpu", "", 2)
    assert device.busy == pytest.approx(6 / 10)
    assert device.alone == pytest.approx(3 / 10)
    assert device.longest_gap == pytest.approx(1)


def test_several_devices_of_one_model_are_distinguished() -> None:
    found = throughput(judged(0, 10, "a/cuda:0", timing=10), judged(0, 10, "a/cuda:1", timing=2, profile=1))
    assert [(one.device_instance, one.busy, one.alone) for one in found.devices] == [
        ("a/cuda:0", pytest.approx(1), pytest.approx(1)),
        ("a/cuda:1", pytest.approx(0.3), pytest.approx(0.2)),
    ]
    assert found.side_by_side == pytest.approx(2)


def test_the_pause_between_two_sittings_is_no_wall_time() -> None:
    found = throughput(judged(0, 10, timing=10), judged(10 + PAUSE_SECONDS + 1, 10, timing=10))
    assert (found.wall, found.pauses) == (20, PAUSE_SECONDS + 1)
    assert (found.idle, found.longest_gap) == (0, 0)
    assert (found.devices[0].busy, found.devices[0].longest_gap) == (1, 0)


def test_what_was_not_judged_in_this_run_is_counted_and_left_out() -> None:
    earlier, untimed = judged(-100, 10, timing=10), changed(judged(5, 10), started_at=0.0)
    found = throughput(judged(0, 1), earlier, untimed)
    assert (found.judged, found.judged_earlier, found.untimed, found.wall) == (1, 1, 1, 1)
    assert found.verdicts == {"correct": 3}


def test_births_are_counted_by_what_became_of_them() -> None:
    def birth(state: BirthState, number: int, **facts: Any) -> Birth:
        return Birth(run="r", generation=number, island=0, slot=0, operator=Operator.TUNE, state=state, **facts)

    states = [BirthState.CREATED, BirthState.DUPLICATE, BirthState.DUPLICATE, BirthState.NO_CODE, BirthState.EXHAUSTED]
    births = tuple(birth(state, number, seconds=0.5, prompt_tokens=240) for number, state in enumerate(states))
    found = throughput(births=births)
    assert (found.births, found.duplicates, found.without_code, found.exhausted) == (5, 2, 1, 1)
    assert found.proposing == 2.5
    assert (found.prompt_tokens, found.completion_tokens) == (1200, 0)


def test_a_run_without_any_evaluation_has_no_rate() -> None:
    found = throughput()
    assert (found.judged, found.wall, found.children_per_hour, found.phases, found.devices) == (0, 0, None, (), ())
    assert found.verdicts == {}
