"""Starting kernels are generated while others are judged: the archive does not depend on when they are ready."""

import threading
from typing import Any

import pytest

from kbevolve.archive.records import Evaluation, Kernel
from kbevolve.archive.store import Archive
from kbevolve.configs.problem import Problem
from kbevolve.evolve.proposers.seeds.seeds import StartingKernel
from tests.evolve.doubles import KnownEvaluator, kernel
from tests.evolve.search.test_lookahead import STARTS, chosen, facts, make

GENERATED = (StartingKernel(kernel=kernel(TILE=64), note="generated"),)


class Releasing(KnownEvaluator):
    """Sets an event when it has judged so many kernels."""

    def __init__(self, after: int, **options: Any) -> None:
        super().__init__(**options)
        self.judged, self._after = threading.Event(), after

    def evaluate(self, problem: Problem, kernel: Kernel) -> Evaluation:
        found = super().evaluate(problem, kernel)
        if self.asked.total() == self._after:
            self.judged.set()
        return found


def undisturbed() -> Archive:
    archive = Archive(":memory:")
    make(archive, chosen(1), "offline", KnownEvaluator(), generated=lambda: GENERATED).run()
    return archive


def test_the_others_are_judged_meanwhile_and_nothing_else_changes() -> None:
    evaluator = Releasing(len(STARTS))

    def slowly() -> tuple[StartingKernel, ...]:
        assert evaluator.judged.wait(20), "the other starting kernels wait for it"
        return GENERATED

    archive = Archive(":memory:")
    make(archive, chosen(1), "offline", evaluator, generated=slowly).run()
    assert facts(archive) == facts(undisturbed())
    births = [birth for birth in archive.runs.births(archive.runs.get().id) if birth.generation == 0]
    assert [(birth.island, birth.slot, birth.note) for birth in births] == [
        (island, slot, note) for island in range(3) for slot, note in enumerate(["seed", "seed", "generated"])
    ]


def test_without_it_the_run_is_as_if_none_was_wanted() -> None:
    archive, other = Archive(":memory:"), Archive(":memory:")
    make(archive, chosen(1), "offline", KnownEvaluator(), generated=tuple).run()
    make(other, chosen(1), "offline", KnownEvaluator()).run()
    assert facts(archive) == facts(other)


def test_two_take_a_slot_each() -> None:
    archive = Archive(":memory:")
    two = (*GENERATED, StartingKernel(kernel=kernel(TILE=32), note="generated too"))
    make(archive, chosen(1), "offline", KnownEvaluator(), generated=lambda: two).run()
    births = [birth for birth in archive.runs.births(archive.runs.get().id) if birth.generation == 0]
    assert [birth.note for birth in births] == 3 * ["seed", "seed", "generated", "generated too"]


@pytest.mark.parametrize("ready", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_run_that_was_interrupted_in_generation_0_ends_like_the_undisturbed_one(ready: bool) -> None:
    """Before or after the kernel was ready, of which the second session is given a new one."""
    archive = Archive(":memory:")
    interrupted = Releasing(len(STARTS), interrupt_at=len(STARTS)) if ready else KnownEvaluator(interrupt_at=1)
    late = threading.Event()

    def generate() -> tuple[StartingKernel, ...]:
        if not ready:
            late.wait(20)
        return GENERATED

    with pytest.raises(KeyboardInterrupt):
        make(archive, chosen(1), "offline", interrupted, generated=generate).run()
    births = archive.runs.births(archive.runs.get().id)
    assert len(births) == 3 * (len(STARTS) + ready)
    make(archive, chosen(1), "offline", KnownEvaluator(), generated=lambda: GENERATED).run()
    assert facts(archive) == facts(undisturbed())
    late.set()
