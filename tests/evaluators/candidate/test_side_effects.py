"""What a call may not do besides its computation."""

from dataclasses import dataclass
from typing import Any, cast

import pytest

from kbevolve.archive.records import Verdict
from kbevolve.evaluators.candidate.call import Call
from kbevolve.evaluators.candidate.side_effects import check_side_effects, leaks_threads
from kbevolve.evaluators.rejection import Rejection


@dataclass(frozen=True)
class ReferenceEffects:
    """The part of a `PreparedProblem` that says what its reference does itself."""

    written_inputs: tuple[int, ...] = ()
    aliasing: tuple[bool, ...] = ()


def call(**facts: Any) -> Call:
    plain: dict[str, Any] = {"changed_inputs": frozenset(), "aliases_input": frozenset(), "changes": ()}
    return Call(ms=1.0, wall_ms=1.3, asked=0.0, **(plain | facts))


def judged(made: Call, allowing: ReferenceEffects) -> Verdict | None:
    try:
        check_side_effects(made, cast("Any", allowing))
    except Rejection as failure:
        return failure.verdict
    return None


@pytest.mark.parametrize(
    "change",
    [
        "torch function mode",
        "torch dispatch mode",
        "default dtype",
        "precision flags",
        "floating-point modes",
        "no account",
    ],
)
def test_a_call_that_changes_its_process_is_refused(change: str) -> None:
    assert judged(call(changes=(change,)), ReferenceEffects(written_inputs=(0,), aliasing=(True,))) is Verdict.REFUSED


def test_a_kernel_may_change_or_return_inputs_only_where_the_reference_does() -> None:
    changed, aliased = call(changed_inputs=frozenset({0})), call(aliases_input=frozenset({1}))
    assert judged(changed, ReferenceEffects()) is judged(aliased, ReferenceEffects()) is Verdict.WRONG
    assert judged(changed, ReferenceEffects(written_inputs=(0,))) is None
    assert judged(aliased, ReferenceEffects(aliasing=(False, True))) is None
    assert judged(aliased, ReferenceEffects(aliasing=(True, False))) is Verdict.WRONG
    assert judged(changed, ReferenceEffects(written_inputs=(1,))) is Verdict.WRONG


def test_threads_are_allowed() -> None:
    lingering = call(changes=("Python threads",))
    assert judged(lingering, ReferenceEffects()) is None
    assert leaks_threads(lingering)
    assert not leaks_threads(call())
