"""When the time of a run is over nothing begins, what has begun ends, and a resumed run ends as the undisturbed one."""

import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from kbevolve.archive.champion import FINAL
from kbevolve.archive.records import BirthState, Evaluation, Kernel, Operator, StopReason
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import Unanswered
from kbevolve.configs.problem import Problem
from kbevolve.evaluators.timing.contest import Contest
from kbevolve.evolve.proposers.base import Brief, Proposal
from kbevolve.evolve.search.deadline import Deadline
from tests.evolve.doubles import KnownConfirmer, KnownEvaluator, ScriptedProposer, kernel
from tests.evolve.search.test_search_budget import facts, sat, settings


class Clock:
    """Seconds of all sessions."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class TimedJudge(KnownEvaluator):
    """Takes ten seconds a kernel, and remembers when each began."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.begun: list[float] = []

    def evaluate(self, problem: Problem, kernel: Kernel) -> Evaluation:
        self.begun.append(self.clock.now)
        self.clock.now += 10
        return super().evaluate(problem, kernel)


class TimedContests(KnownConfirmer):
    """Takes five seconds a kernel, the reference included, and remembers when each contest began."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.begun: list[float] = []

    def compete(self, problem: Problem, kernels: Sequence[Kernel], *, rounds: int) -> Contest:
        self.begun.append(self.clock.now)
        self.clock.now += 5 * (len(kernels) + 1)
        return super().compete(problem, kernels, rounds=rounds)


@pytest.mark.parametrize("lookahead", [0, 2])
@pytest.mark.parametrize("contests", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_run_that_its_time_cut_anywhere_ends_as_the_undisturbed_one(lookahead: int, contests: bool) -> None:
    def begin(archive: Archive, clock: Clock, limit: float | None) -> tuple[Any, list[float]]:
        judge, confirmer = TimedJudge(clock), TimedContests(clock)
        budget = {} if limit is None else {"wall_seconds": limit}
        chosen = settings(budget, generations=6, lookahead=lookahead)
        options = {"confirmer": confirmer} if contests else {}
        return sat(archive, chosen, judge, elapsed=clock, **options), judge.begun

    whole, clock = Archive(":memory:"), Clock()
    undisturbed, begun = begin(whole, clock, None)
    assert undisturbed.run() is StopReason.GENERATIONS
    cuts_within, all_begun = 0, len(begun)
    for limit in range(5, int(clock.now) - 20, 10):
        archive, clock = Archive(":memory:"), Clock()
        first, begun = begin(archive, clock, float(limit))
        assert first.run() is StopReason.WALL_TIME_SPENT
        assert max(begun) < limit
        view = archive.run_view(archive.runs.get())
        cuts_within += view.last_ended() != view.last_generation()
        assert archive.runs.summaries()[0].stopped is StopReason.WALL_TIME_SPENT
        clock.now = float(limit)
        again, nothing = begin(archive, clock, float(limit))
        assert again.run() is StopReason.WALL_TIME_SPENT
        assert nothing == []
        second, others = begin(archive, clock, None)
        assert second.run() is StopReason.GENERATIONS
        assert facts(archive) == facts(whole), limit
        assert len(begun) + len(others) == all_begun, "nothing is judged twice"
    assert cuts_within > 2


def test_work_that_has_begun_ends_and_counts() -> None:
    archive, clock, lock = Archive(":memory:"), Clock(), threading.Lock()

    class Beside(KnownEvaluator):
        """The time is over while the fourth kernel is judged, beside others."""

        def evaluate(self, problem: Problem, kernel: Kernel) -> Evaluation:
            with lock:
                found = super().evaluate(problem, kernel)
                if self.asked.total() == 4:
                    clock.now = 100.0
            time.sleep(0.05)
            return found

    judge = Beside()
    chosen = settings({"wall_seconds": 100}, islands=6, lookahead=0)
    assert sat(archive, chosen, judge, elapsed=clock, width=6).run() is StopReason.WALL_TIME_SPENT
    assert 4 <= judge.asked.total() < 7
    assert set(judge.asked) == set(archive.runs.evaluations(archive.runs.get().id))


@pytest.mark.parametrize(("limit", "requests"), [(15, 1), (25, 2)])
def test_no_repair_is_asked_for_when_the_time_is_over(limit: int, requests: int) -> None:
    archive, clock = Archive(":memory:"), Clock()

    def answer(brief: Brief) -> Proposal:
        written = Kernel.from_source(f"class ModelNew: broken = {brief.rng.random()}\n")
        return Proposal(state=BirthState.CREATED, kernel=written)

    proposer, judge = ScriptedProposer(answer), TimedJudge(clock)
    writing = (Operator.MUTATE, Operator.REWRITE, Operator.CROSS, Operator.REPAIR)
    chosen = settings({"wall_seconds": limit}, islands=1, tune_share=0.0, repair_turns=3)
    proposers = dict.fromkeys(writing, proposer)
    assert sat(archive, chosen, judge, elapsed=clock, proposers=proposers).run() is StopReason.WALL_TIME_SPENT
    births = archive.runs.births(archive.runs.get().id)
    assert [one.slot for one in births if one.generation == 1] == [*range(requests)]
    assert len(proposer.briefs) == requests
    assert judge.begun[-1] < limit < clock.now, "the kernel that was being judged has its verdict"
    assert len(archive.runs.evaluations(archive.runs.get().id)) == 1 + requests


def test_the_final_is_held_within_the_time_where_it_fits() -> None:
    def finals(limit: float, seconds: float) -> tuple[bool, float, float]:
        """Whether there was one; when the run ended; when the last contest began."""
        archive, clock = Archive(":memory:"), Clock()
        contests = TimedContests(clock)

        class Slow(TimedJudge):
            def evaluate(self, problem: Problem, kernel: Kernel) -> Evaluation:
                self.clock.now += seconds - 10
                return super().evaluate(problem, kernel)

        chosen = settings({"wall_seconds": limit}, generations=40)
        reason = sat(archive, chosen, Slow(clock), confirmer=contests, elapsed=clock).run()
        assert reason is StopReason.WALL_TIME_SPENT
        made = archive.runs.confirmations(archive.runs.get().id)
        return any(one.purpose == FINAL for one in made), clock.now, max(contests.begun, default=0.0)

    for limit in (90.0, 93.0, 101.0, 108.0):
        held, ended, _ = finals(limit, 1.0)
        assert held
        assert ended <= limit + 1, "less than the kernel that was being judged"
    held, ended, begun = finals(120.0, 90.0)
    assert not held, "the kernel that was being judged took all the time"
    assert begun < 120 < ended


def test_a_contest_that_may_not_begin_is_held_by_the_next_session() -> None:
    archive, clock = Archive(":memory:"), Clock()
    contests = TimedContests(clock)
    judged = settings({"wall_seconds": 10}, generations=0, islands=1)
    lucky = TimedJudge(clock)
    lucky.luck = {kernel().id: 4.0}
    assert sat(archive, judged, lucky, confirmer=contests, elapsed=clock).run() is StopReason.WALL_TIME_SPENT
    run = archive.runs.get()
    assert (contests.begun, archive.run_view(run).last_ended()) == ([], None)
    more = settings({"wall_seconds": 100}, generations=0, islands=1)
    assert sat(archive, more, lucky, confirmer=contests, elapsed=clock).run() is StopReason.GENERATIONS
    assert contests.begun[0] == 10.0
    assert (len(lucky.begun), archive.run_view(run).last_ended()) == (1, 0)


def test_a_deadline_keeps_time_for_the_final() -> None:
    clock = Clock()
    deadline = Deadline(limit=100.0, elapsed=clock, reserve=30.0)
    clock.now = 69.9
    deadline.check()
    assert not deadline.near
    clock.now = 70.0
    assert (deadline.near, deadline.over) == (True, False)
    with pytest.raises(Unanswered):
        deadline.check()
    clock.now = 100.0
    assert deadline.over
    assert not Deadline(limit=None, elapsed=clock, reserve=1e9).near
