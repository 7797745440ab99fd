"""The judge's own clock against the reported times: what is refused, what gets a penalty, what is tolerated."""

import math
from dataclasses import replace

import pytest

from kbevolve.archive.records import Verdict
from kbevolve.evaluators.candidate.call import Call
from kbevolve.evaluators.rejection import Rejection
from kbevolve.evaluators.timing.clock import (
    Undisturbed,
    check_clocks,
    penalty_ms,
    repeat_while,
    undisturbed_share,
    unreported_ms,
)
from kbevolve.evaluators.timing.rounds import TimedBlock
from kbevolve.evaluators.timing.statistics import hodges_lehmann, round_log_ratio


def calls(ms: float, overheads: list[float]) -> list[Call]:
    return [
        Call(ms=ms, wall_ms=ms + overhead, asked=0.0, changed_inputs=frozenset(), aliases_input=frozenset(), changes=())
        for overhead in overheads
    ]


#: The reference on a machine without other load.
UNDISTURBED = Undisturbed(ms=1.0, overhead_ms=0.3)
#: Milliseconds of round trips beside the call, on a machine with other load.
USUAL = [0.3, 0.31, 0.35, 0.3, 0.29, 0.8, 0.33, 0.3, 0.32, 5.0]


def test_an_honest_kernel_of_any_speed_agrees_with_the_judge() -> None:
    for ms in (0.01, 1.0, 50.0):
        check_clocks(calls(ms, USUAL[::-1]), calls(2.0, USUAL), "cuda")


def test_unreported_time_is_seen() -> None:
    hidden = [overhead + 1.0 for overhead in USUAL]
    assert unreported_ms(calls(1.0, hidden), calls(2.0, [0.3] * 10)) == pytest.approx(1.0, abs=0.05)
    with pytest.raises(Rejection) as caught:
        check_clocks(calls(1.0, hidden), calls(2.0, [0.3] * 10), "cuda")
    assert caught.value.verdict is Verdict.REFUSED


def test_time_that_a_kernels_threads_waited_for_a_processor_is_no_fault() -> None:
    """As seen on two cores, one of them busy: a thread spins until another one on the same core was scheduled."""
    spinning, reference = calls(1.1, [21.5, 21.7, 24.0]), calls(0.17, [2.1, 2.6, 2.6])
    check_clocks(spinning, reference, "cpu", waited_ms=20.9)
    with pytest.raises(Rejection):
        check_clocks(spinning, reference, "cpu", waited_ms=3.0)


def test_a_few_delayed_calls_are_no_fault() -> None:
    delayed = [9.0, 9.0, 9.0, *[0.3] * 7]
    check_clocks(calls(1.0, delayed), calls(1.0, [0.3] * 10), "cpu")


def test_time_hidden_in_most_calls_is_no_gain() -> None:
    """A machine with other load has the same effect: no reason to refuse a kernel, and none to believe its times."""
    mostly = [0.3, 0.3, 0.3] + [2.3] * 7
    check_clocks(calls(1.0, mostly), calls(1.0, [0.3] * 10), "cpu")
    assert penalty_ms(
        [calls(1.0, mostly)] * 6, calls(1.0, [0.3] * 60), "cpu", undisturbed=UNDISTURBED
    ) == pytest.approx(2.0)


def test_the_tails_of_a_noisy_machine_give_no_penalty() -> None:
    """As seen once for two processes of the same code on two shared cores: their medians were 3.5 ms apart."""
    reference = [11.96, 12.0, 12.01, 12.1, 12.2, 12.22, 12.3, 12.5, 12.6, 12.7, 12.8, 12.83, 12.83]
    reference += [13.0, 13.5, 14.0, 14.5, 14.9, 14.96, 15.5, 16.0, 17.0, 18.0, 19.0, 20.0]
    kernel = [11.62, 12.1, 12.18, 12.3, 12.4, 12.5, 12.57, 13.0, 14.0, 15.0, 16.0, 16.2, 16.33]
    kernel += [16.5, 17.0, 18.0, 19.0, 20.0, 20.21, 21.0, 22.0, 23.0, 24.0, 25.0, 26.0]
    blocks = [calls(2.0, kernel[start : start + 5]) for start in range(0, 25, 5)]
    undisturbed = Undisturbed(1.9, 11.0)
    check_clocks(calls(2.0, kernel), calls(2.0, reference), "cpu")
    assert penalty_ms(blocks, calls(2.0, reference), "cpu", undisturbed=undisturbed) == 0


@pytest.mark.parametrize("overheads", [USUAL, [0.3, 4.3, 0.5, 4.5, 0.4, 4.4, 0.6, 0.3, 0.4, 4.6]])
@pytest.mark.parametrize(
    ("rounds", "lying_rounds", "size", "lies"), [(5, 4, 10, 6), (5, 5, 10, 2), (25, 24, 10, 5), (3, 1, 1, 1)]
)
def test_time_hidden_in_the_calls_that_represent_a_block_is_no_gain(
    overheads: list[float], rounds: int, lying_rounds: int, size: int, lies: int
) -> None:
    """A kernel of 3 ms reports 0.5 ms in fewer than half of its calls; the median of all calls does not show it."""
    true, reported = 3.0, 0.5
    delays = (overheads * rounds)[: rounds * size]
    kernel = []
    for number in range(rounds):
        lying = lies if number < lying_rounds else 0
        block = calls(true, delays[number * size : (number + 1) * size])
        kernel.append([*(replace(call, ms=reported) for call in block[:lying]), *block[lying:]])
    every = [call for block in kernel for call in block]
    reference = calls(3.0, delays)
    assert sum(call.ms == reported for call in every) < len(every) / 2
    check_clocks(every, reference, "cpu")
    penalty = penalty_ms(kernel, reference, "cpu", undisturbed=UNDISTURBED)
    believed = [TimedBlock(trip_ms=1.0, processor_ms=1.0, calls=tuple(block), penalty_ms=penalty) for block in kernel]
    assert _speedup(believed, true) <= 1.02
    assert _speedup([TimedBlock(trip_ms=1.0, processor_ms=1.0, calls=tuple(block)) for block in kernel], true) > 1.5, (
        "without the penalty it gains"
    )


def _speedup(blocks: list[TimedBlock], reference_ms: float) -> float:
    return math.exp(hodges_lehmann([round_log_ratio([reference_ms], block.times_ms) for block in blocks]))


def test_calls_that_truly_differ_give_no_penalty() -> None:
    fast, slow = calls(1.0, USUAL), calls(3.0, USUAL)
    mixed = [*fast[:4], *slow[4:]]
    for kernel in ([fast, slow, fast, slow], [fast, fast, fast, slow], [slow, slow, slow, fast], [mixed] * 5):
        assert penalty_ms(kernel, calls(2.0, USUAL), "cuda", undisturbed=UNDISTURBED) == 0


def test_a_burst_that_spares_only_one_call_is_no_fault() -> None:
    check_clocks(calls(1.0, [4.0, 5.0, 4.2, 6.0, 0.3, 4.4, 4.0, 5.5, 4.1]), calls(1.0, [0.3] * 9), "cpu")


def test_a_small_share_of_a_long_call_is_tolerated() -> None:
    check_clocks(calls(50.0, [4.0] * 10), calls(50.0, [0.3] * 10), "cuda")


def test_on_a_quiet_machine_there_is_no_penalty() -> None:
    assert penalty_ms([calls(1.0, USUAL[::-1])], calls(2.0, USUAL), "cuda", undisturbed=UNDISTURBED) == 0
    assert penalty_ms([calls(1.0, [0.2] * 10)], calls(2.0, [0.3] * 10), "cuda", undisturbed=UNDISTURBED) == 0
    assert penalty_ms([calls(50.0, [4.0] * 10)], calls(50.0, [0.3] * 10), "cuda", undisturbed=UNDISTURBED) == 0


def test_time_hidden_behind_a_busy_machine_is_no_gain() -> None:
    """Half of the reference's round trips are delayed by 4 ms; the kernel hides 2.5 ms in each of its own."""
    busy = [0.3, 4.3, 0.5, 4.5, 0.4, 4.4, 0.6, 0.3, 0.4, 4.6]
    hiding = [delay + 2.5 for delay in busy]
    check_clocks(calls(0.05, hiding), calls(2.5, busy), "cpu")
    assert penalty_ms([calls(0.05, hiding)], calls(2.5, busy), "cpu", undisturbed=UNDISTURBED) == pytest.approx(2.5)


def test_a_kernel_with_a_luckier_median_still_shows_what_it_hides() -> None:
    burst = [9.0, 9.5, 9.2, 9.1, 9.0, 0.3, 0.4, 9.9, 9.0]
    assert penalty_ms([calls(0.05, [2.8] * 9)], calls(14.0, burst), "cpu", undisturbed=UNDISTURBED) == pytest.approx(
        2.5
    )


def test_a_kernel_gains_little_by_hidden_time_while_all_trips_of_the_reference_are_delayed() -> None:
    """As seen once: a machine with more load than cores, and a kernel that computes before its clock starts."""
    delayed = [6.0, 5.2, 7.1, 9.0, 5.0, 5.5, 6.3, 5.1, 8.0]
    reported, hidden = 0.03, 4.0
    penalty = penalty_ms([calls(reported, [0.3 + hidden] * 9)], calls(3.0, delayed), "cpu", undisturbed=UNDISTURBED)
    assert penalty == pytest.approx(hidden, abs=0.2)


def test_the_undisturbed_reference_is_its_fastest_calls() -> None:
    seen = Undisturbed.of(calls(2.0, USUAL))
    assert seen == Undisturbed(2.0, pytest.approx(0.3, abs=0.01))
    assert UNDISTURBED.or_less(seen) == Undisturbed(1.0, seen.overhead_ms)


def test_delays_of_the_reference_are_no_gain() -> None:
    assert undisturbed_share(1.2, UNDISTURBED) == 1
    assert undisturbed_share(15.0, UNDISTURBED) * 15.0 == pytest.approx(1.5)


@pytest.mark.parametrize(("results", "final"), [("s", "s"), ("ds", "s"), ("ddd", "d"), ("dds", "s")])
def test_a_doubtful_result_is_final_after_three_processes(results: str, final: str) -> None:
    """d: doubtful; s: sure."""
    left = list(results)
    assert repeat_while(lambda result: result == "d", lambda: left.pop(0)) == final
    assert not left
