import math
from dataclasses import replace

import pytest

from kbevolve.archive.records import Verdict
from kbevolve.evaluators.candidate.remote import Call
from kbevolve.evaluators.rejection import Rejection
from kbevolve.evaluators.timing.clock import (
    Alone,
    check_clocks,
    penalty_ms,
    undisturbed_share,
    unreported_ms,
    until_sure,
)
from kbevolve.evaluators.timing.rounds import Block
from kbevolve.evaluators.timing.statistics import hodges_lehmann, round_log_ratio


def calls(ms: float, overheads: list[float]) -> list[Call]:
    return [
        Call(ms=ms, wall_ms=ms + overhead, asked=0.0, changed_input=False, aliases_input=False, changes=())
        for overhead in overheads
    ]


#: The reference on a machine with nothing else on it.
ALONE = Alone(ms=1.0, overhead_ms=0.3)
#: Milliseconds that a round trip takes beside the call, as a machine with other work on it gives them.
USUAL = [0.3, 0.31, 0.35, 0.3, 0.29, 0.8, 0.33, 0.3, 0.32, 5.0]


def test_an_honest_kernel_of_any_speed_agrees_with_the_judge() -> None:
    for ms in (0.01, 1.0, 50.0):
        check_clocks(calls(ms, USUAL[::-1]), calls(2.0, USUAL), "cuda")


def test_time_that_was_not_told_is_seen() -> None:
    hidden = [overhead + 1.0 for overhead in USUAL]
    assert unreported_ms(calls(1.0, hidden), calls(2.0, [0.3] * 10)) == pytest.approx(1.0, abs=0.05)
    with pytest.raises(Rejection) as caught:
        check_clocks(calls(1.0, hidden), calls(2.0, [0.3] * 10), "cuda")
    assert caught.value.verdict is Verdict.REFUSED


def test_what_a_kernels_threads_waited_for_a_processor_is_nobodys_fault() -> None:
    """As it was seen on two cores, one of them busy: a thread spins until its brother, behind it, has had his turn."""
    spinning, reference = calls(1.1, [21.5, 21.7, 24.0]), calls(0.17, [2.1, 2.6, 2.6])
    check_clocks(spinning, reference, "cpu", waited_ms=20.9)
    with pytest.raises(Rejection):
        check_clocks(spinning, reference, "cpu", waited_ms=3.0)


def test_a_few_delayed_calls_are_nobodys_fault() -> None:
    delayed = [9.0, 9.0, 9.0, *[0.3] * 7]
    check_clocks(calls(1.0, delayed), calls(1.0, [0.3] * 10), "cpu")


def test_time_hidden_in_most_calls_is_nobodys_gain() -> None:
    """A machine with other work on it does as much: no reason to refuse a kernel, and none to believe its times."""
    mostly = [0.3, 0.3, 0.3] + [2.3] * 7
    check_clocks(calls(1.0, mostly), calls(1.0, [0.3] * 10), "cpu")
    assert penalty_ms([calls(1.0, mostly)] * 6, calls(1.0, [0.3] * 60), "cpu", alone=ALONE) == pytest.approx(2.0)


def test_the_tails_of_a_noisy_machine_are_no_reason_for_doubt() -> None:
    """As two processes of the same code were once seen on two shared cores: the medians 3.5 ms apart."""
    reference = [11.96, 12.0, 12.01, 12.1, 12.2, 12.22, 12.3, 12.5, 12.6, 12.7, 12.8, 12.83, 12.83]
    reference += [13.0, 13.5, 14.0, 14.5, 14.9, 14.96, 15.5, 16.0, 17.0, 18.0, 19.0, 20.0]
    kernel = [11.62, 12.1, 12.18, 12.3, 12.4, 12.5, 12.57, 13.0, 14.0, 15.0, 16.0, 16.2, 16.33]
    kernel += [16.5, 17.0, 18.0, 19.0, 20.0, 20.21, 21.0, 22.0, 23.0, 24.0, 25.0, 26.0]
    blocks = [calls(2.0, kernel[start : start + 5]) for start in range(0, 25, 5)]
    alone = Alone(1.9, 11.0)
    check_clocks(calls(2.0, kernel), calls(2.0, reference), "cpu")
    assert penalty_ms(blocks, calls(2.0, reference), "cpu", alone=alone) == 0


@pytest.mark.parametrize("overheads", [USUAL, [0.3, 4.3, 0.5, 4.5, 0.4, 4.4, 0.6, 0.3, 0.4, 4.6]])
@pytest.mark.parametrize(
    ("rounds", "lying_rounds", "size", "lies"), [(5, 4, 10, 6), (5, 5, 10, 2), (25, 24, 10, 5), (3, 1, 1, 1)]
)
def test_time_hidden_in_the_calls_that_a_block_is_taken_to_be_is_nobodys_gain(
    overheads: list[float], rounds: int, lying_rounds: int, size: int, lies: int
) -> None:
    """A kernel of 3 ms tells 0.5 ms in fewer than half of its calls: the median of all calls shows nothing of it."""
    true, told = 3.0, 0.5
    delays = (overheads * rounds)[: rounds * size]
    kernel = []
    for number in range(rounds):
        lying = lies if number < lying_rounds else 0
        block = calls(true, delays[number * size : (number + 1) * size])
        kernel.append([*(replace(call, ms=told) for call in block[:lying]), *block[lying:]])
    every = [call for block in kernel for call in block]
    reference = calls(3.0, delays)
    assert sum(call.ms == told for call in every) < len(every) / 2
    check_clocks(every, reference, "cpu")
    doubt = penalty_ms(kernel, reference, "cpu", alone=ALONE)
    believed = [Block(trip_ms=1.0, processor_ms=1.0, calls=tuple(block), penalty_ms=doubt) for block in kernel]
    assert _speedup(believed, true) <= 1.02
    assert _speedup([Block(trip_ms=1.0, processor_ms=1.0, calls=tuple(block)) for block in kernel], true) > 1.5, (
        "it would have gained"
    )


def _speedup(blocks: list[Block], reference_ms: float) -> float:
    return math.exp(hodges_lehmann([round_log_ratio([reference_ms], block.times_ms) for block in blocks]))


def test_calls_that_truly_differ_are_no_reason_for_doubt() -> None:
    fast, slow = calls(1.0, USUAL), calls(3.0, USUAL)
    mixed = [*fast[:4], *slow[4:]]
    for kernel in ([fast, slow, fast, slow], [fast, fast, fast, slow], [slow, slow, slow, fast], [mixed] * 5):
        assert penalty_ms(kernel, calls(2.0, USUAL), "cuda", alone=ALONE) == 0


def test_a_burst_over_all_blocks_of_a_kernel_but_one_call_is_nobodys_fault() -> None:
    check_clocks(calls(1.0, [4.0, 5.0, 4.2, 6.0, 0.3, 4.4, 4.0, 5.5, 4.1]), calls(1.0, [0.3] * 9), "cpu")


def test_a_small_share_of_a_long_call_is_within_what_clocks_may_differ() -> None:
    check_clocks(calls(50.0, [4.0] * 10), calls(50.0, [0.3] * 10), "cuda")


def test_on_a_quiet_machine_there_is_no_doubt() -> None:
    assert penalty_ms([calls(1.0, USUAL[::-1])], calls(2.0, USUAL), "cuda", alone=ALONE) == 0
    assert penalty_ms([calls(1.0, [0.2] * 10)], calls(2.0, [0.3] * 10), "cuda", alone=ALONE) == 0
    assert penalty_ms([calls(50.0, [4.0] * 10)], calls(50.0, [0.3] * 10), "cuda", alone=ALONE) == 0


def test_time_that_a_busy_machine_could_hide_is_nobodys_gain() -> None:
    """Half of the reference's round trips are delayed by 4 ms; the kernel hides 2.5 ms in each of its own."""
    busy = [0.3, 4.3, 0.5, 4.5, 0.4, 4.4, 0.6, 0.3, 0.4, 4.6]
    hiding = [delay + 2.5 for delay in busy]
    check_clocks(calls(0.05, hiding), calls(2.5, busy), "cpu")
    assert penalty_ms([calls(0.05, hiding)], calls(2.5, busy), "cpu", alone=ALONE) == pytest.approx(2.5)


def test_a_kernel_that_was_luckier_in_the_median_still_shows_what_it_hides() -> None:
    burst = [9.0, 9.5, 9.2, 9.1, 9.0, 0.3, 0.4, 9.9, 9.0]
    assert penalty_ms([calls(0.05, [2.8] * 9)], calls(14.0, burst), "cpu", alone=ALONE) == pytest.approx(2.5)


def test_who_hides_time_while_all_of_the_references_trips_are_delayed_gains_little() -> None:
    """As it was once seen: a machine with more to do than cores, and a kernel that computes before its clock starts."""
    delayed = [6.0, 5.2, 7.1, 9.0, 5.0, 5.5, 6.3, 5.1, 8.0]
    told, hidden = 0.03, 4.0
    doubt = penalty_ms([calls(told, [0.3 + hidden] * 9)], calls(3.0, delayed), "cpu", alone=ALONE)
    assert doubt == pytest.approx(hidden, abs=0.2)


def test_alone_is_what_the_fastest_calls_show() -> None:
    seen = Alone.of(calls(2.0, USUAL))
    assert seen == Alone(2.0, pytest.approx(0.3, abs=0.01))
    assert ALONE.or_less(seen) == Alone(1.0, seen.overhead_ms)


def test_what_a_busy_machine_adds_to_the_reference_is_nobodys_gain() -> None:
    assert undisturbed_share(1.2, ALONE) == 1
    assert undisturbed_share(15.0, ALONE) * 15.0 == pytest.approx(1.5)


@pytest.mark.parametrize(("looks", "found", "count"), [("s", "s", 1), ("us", "s", 2), ("uuu", "u", 3), ("uus", "s", 3)])
def test_doubts_stand_when_all_processes_show_them(looks: str, found: str, count: int) -> None:
    """u: something had to be added; s: sure."""
    left = iter(looks)
    taken: list[str] = []

    def look() -> str:
        taken.append(next(left))
        return taken[-1]

    assert until_sure(look, lambda one: one == "u") == found
    assert len(taken) == count
