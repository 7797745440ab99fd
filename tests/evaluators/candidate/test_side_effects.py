from dataclasses import dataclass
from typing import Any, cast

import pytest

from kbevolve.archive.records import Verdict
from kbevolve.evaluators.candidate.remote import Call
from kbevolve.evaluators.candidate.side_effects import check_conduct, left_threads
from kbevolve.evaluators.rejection import Rejection


@dataclass(frozen=True)
class Allowing:
    """What of a `PreparedProblem` says which liberties its reference takes itself."""

    in_place: bool = False
    aliasing: bool = False


def call(**facts: Any) -> Call:
    plain: dict[str, Any] = {"changed_input": False, "aliases_input": False, "changes": ()}
    return Call(ms=1.0, wall_ms=1.3, asked=0.0, **(plain | facts))


def judged(made: Call, allowing: Allowing) -> Verdict | None:
    try:
        check_conduct(made, cast("Any", allowing))
    except Rejection as failure:
        return failure.verdict
    return None


@pytest.mark.parametrize(
    "change",
    ["torch function mode", "torch dispatch mode", "default dtype", "precision flags", "no account"],
)
def test_a_call_leaves_its_process_as_it_was(change: str) -> None:
    assert judged(call(changes=(change,)), Allowing(in_place=True, aliasing=True)) is Verdict.REFUSED


def test_inputs_are_the_kernels_own_only_where_the_reference_takes_them_for_its_own() -> None:
    changed, aliased = call(changed_input=True), call(aliases_input=True)
    assert judged(changed, Allowing()) is judged(aliased, Allowing()) is Verdict.WRONG
    assert judged(changed, Allowing(in_place=True)) is judged(aliased, Allowing(aliasing=True)) is None


def test_threads_are_no_fault() -> None:
    lingering = call(changes=("Python threads",))
    assert judged(lingering, Allowing()) is None
    assert left_threads(lingering)
    assert not left_threads(call())
