import pytest

from kbevolve.archive.records import Verdict
from kbevolve.evaluators.isolation.remote import Call
from kbevolve.evaluators.rejection import Rejection
from kbevolve.evaluators.timing.clock import check_clocks, untold_ms


def calls(ms: float, overheads: list[float]) -> list[Call]:
    return [
        Call(ms=ms, wall_ms=ms + overhead, asked=0.0, changed_input=False, aliases_input=False, changes=())
        for overhead in overheads
    ]


#: Milliseconds that a round trip takes beside the call, as a machine with other work on it gives them.
USUAL = [0.3, 0.31, 0.35, 0.3, 0.29, 0.8, 0.33, 0.3, 0.32, 5.0]


def test_an_honest_kernel_of_any_speed_agrees_with_the_judge() -> None:
    for ms in (0.01, 1.0, 50.0):
        check_clocks(calls(ms, USUAL[::-1]), calls(2.0, USUAL), "cuda")


def test_time_that_was_not_told_is_seen() -> None:
    hidden = [overhead + 1.0 for overhead in USUAL]
    assert untold_ms(calls(1.0, hidden), calls(2.0, [0.3] * 10)) == pytest.approx(1.0, abs=0.05)
    with pytest.raises(Rejection) as caught:
        check_clocks(calls(1.0, hidden), calls(2.0, [0.3] * 10), "cuda")
    assert caught.value.verdict is Verdict.REFUSED


def test_a_few_delayed_calls_are_nobodys_fault() -> None:
    delayed = [9.0, 9.0, 9.0, *[0.3] * 7]
    check_clocks(calls(1.0, delayed), calls(1.0, [0.3] * 10), "cpu")


def test_time_hidden_in_most_calls_is_time_hidden() -> None:
    mostly = [0.3, 0.3, 0.3, 0.3] + [2.3] * 6
    with pytest.raises(Rejection):
        check_clocks(calls(1.0, mostly), calls(1.0, [0.3] * 10), "cpu")


def test_a_small_share_of_a_long_call_is_within_what_clocks_may_differ() -> None:
    check_clocks(calls(50.0, [4.0] * 10), calls(50.0, [0.3] * 10), "cuda")
