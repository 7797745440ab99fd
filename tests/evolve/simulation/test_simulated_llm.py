"""The llm: how often it slips, repeats itself and repairs, and what showing it something is worth."""

import math
import statistics
from random import Random

import pytest

from kbevolve.archive.records import Operator, Verdict
from kbevolve.evolve.simulation.ladders import LADDERS, find_ladder
from kbevolve.evolve.simulation.landscape import Landscape, Program, ProgramFailure, families
from kbevolve.evolve.simulation.moves import potential
from kbevolve.evolve.simulation.simulated_llm import RECORDED, Draft, SimulatedLLM, Task, judge

FAITHFUL = SimulatedLLM(slips={}, repeats=0.0)
SLIP = ProgramFailure(verdict=Verdict.BUILD_FAILED, signature="BUILD_FAILED: unexpected token")


def searched(
    landscape: Landscape, llm: SimulatedLLM, *, evaluations: int, seed: int
) -> list[tuple[Draft, ProgramFailure | None]]:
    """A plain search: the best so far, each time with another operator. What was written and what failed."""
    rng = Random(seed)
    known = {program: landscape.true_value(program) or 0.0 for program in landscape.start()}
    written = []
    for _ in range(evaluations):
        parents = tuple(sorted(known, key=lambda program: known[program], reverse=True)[:2])
        operator = rng.choice((Operator.MUTATE, Operator.MUTATE, Operator.REWRITE, Operator.CROSS))
        idea = llm.ideas(landscape, parents[0], rng)[0]
        draft = llm.write(landscape, Task(operator=operator, parents=parents, idea=idea), rng)
        outcome = judge(landscape, draft, rng)
        failed = isinstance(outcome, ProgramFailure)
        written.append((draft, outcome if failed else None))
        if not failed:
            known[draft.program] = -statistics.fmean(outcome)
    return written


def test_the_same_random_writes_the_same(landscape: Landscape) -> None:
    assert searched(landscape, SimulatedLLM(), evaluations=20, seed=1) == searched(
        landscape, SimulatedLLM(), evaluations=20, seed=1
    )
    assert searched(landscape, SimulatedLLM(), evaluations=20, seed=1) != searched(
        landscape, SimulatedLLM(), evaluations=20, seed=2
    )


@pytest.mark.parametrize("name", LADDERS)
def test_as_many_fail_and_are_duplicates_as_with_models(name: str) -> None:
    """SEARCH: 30 to 50 % of the proposals are invalid, 15 to 35 % duplicates."""
    landscape = find_ladder(name)
    runs = [searched(landscape, SimulatedLLM(), evaluations=100, seed=seed) for seed in range(4)]
    assert 0.3 < statistics.fmean(failure is not None for run in runs for _, failure in run) < 0.5
    assert 0.1 < statistics.fmean(1 - len({draft for draft, _ in run}) / len(run) for run in runs) < 0.35
    signatures = [failure.signature for run in runs for _, failure in run if failure]
    assert len(set(signatures)) < len(signatures) / 4


def test_slips_come_at_their_shares_and_more_often_in_rewrites() -> None:
    landscape, rng = find_ladder("ladder-a"), Random(3)
    llm = SimulatedLLM(slips={Verdict.WRONG: 0.3}, repeats=0.0)
    start = landscape.start()[0]
    shares = {}
    for operator in (Operator.MUTATE, Operator.REWRITE, Operator.TUNE):
        drafts = [llm.write(landscape, Task(operator=operator, parents=(start,)), rng) for _ in range(600)]
        assert {draft.slip.verdict for draft in drafts if draft.slip} <= {Verdict.WRONG}
        shares[operator] = statistics.fmean(draft.slip is not None for draft in drafts)
    assert shares[Operator.MUTATE] == pytest.approx(0.3, abs=0.06)
    assert shares[Operator.REWRITE] == pytest.approx(0.39, abs=0.06)
    assert shares[Operator.TUNE] == 0.0


def test_a_slip_fails_whatever_was_meant() -> None:
    landscape = find_ladder("ladder-a")
    start = landscape.start()[0]
    assert judge(landscape, Draft(program=start, slip=SLIP), Random(0)) == SLIP
    assert isinstance(judge(landscape, Draft(program=start), Random(0)), tuple)


def test_mending_a_slip_gives_what_was_meant(landscape: Landscape) -> None:
    draft = Draft(program=landscape.start()[0], slip=SLIP)
    assert SimulatedLLM(repairs=1.0).repair(landscape, draft, SLIP, Random(0)) == Draft(program=draft.program)
    assert SimulatedLLM(repairs=0.0).repair(landscape, draft, SLIP, Random(0)) == draft
    repaired = [SimulatedLLM(repairs=0.6).repair(landscape, draft, SLIP, Random(seed)) != draft for seed in range(300)]
    assert statistics.fmean(repaired) == pytest.approx(0.6, abs=0.1)


def test_what_is_over_is_not_mended() -> None:
    landscape = find_ladder("ladder-a")
    late = ProgramFailure(verdict=Verdict.TIMED_OUT, signature="TIMED_OUT: a loop does not end")
    draft = Draft(program=landscape.start()[0], slip=late)
    assert SimulatedLLM(repairs=1.0).repair(landscape, draft, late, Random(0)) == draft


def failing(landscape: Landscape) -> Program:
    rng = Random(5)
    while True:
        program = tuple(rng.randrange(gene.choices) for gene in landscape.genes)
        failure = landscape.failure(program)
        if landscape.exists(program) and failure is not None and failure.verdict.repairable:
            return program


def test_mending_a_planted_fault_leaves_its_region(landscape: Landscape) -> None:
    program = failing(landscape)
    failure = landscape.failure(program)
    assert failure is not None
    repaired = {
        SimulatedLLM(repairs=1.0).repair(landscape, Draft(program=program), failure, Random(seed)) for seed in range(10)
    }
    valid = [draft for draft in repaired if landscape.failure(draft.program) is None]
    assert valid or repaired == {Draft(program=program)}  # or every neighbour fails too


def test_a_good_inspiration_makes_better_children() -> None:
    """And a bad one does not: what is shown is taken over, whatever it is worth."""
    landscape = find_ladder("ladder-a")
    start = landscape.start()[0]
    good = start
    for seed in range(3):
        for draft, failure in searched(landscape, FAITHFUL, evaluations=100, seed=seed):
            value = landscape.true_value(draft.program)
            if failure is None and value is not None and value > (landscape.true_value(good) or 0.0):
                good = draft.program
    assert (landscape.true_value(good) or 0.0) > 0.7

    def gains(inspirations: tuple[Program, ...]) -> float:
        rng = Random(6)
        task = Task(operator=Operator.MUTATE, parents=(start,), inspirations=inspirations)
        values = [landscape.true_value(FAITHFUL.write(landscape, task, rng).program) for _ in range(600)]
        return statistics.fmean(value for value in values if value is not None)

    assert gains((good,)) > gains(()) + 0.02


def test_a_warning_is_mostly_heeded() -> None:
    landscape = find_ladder("ladder-b")
    rng = Random(7)
    parents = [draft.program for draft, failure in searched(landscape, FAITHFUL, evaluations=60, seed=8) if not failure]
    signatures = frozenset(fault.failure.signature for fault in landscape.faults)

    def failures(warnings: frozenset[str]) -> float:
        llm = SimulatedLLM(slips={}, repeats=0.0, heeds=1.0)
        tasks = [Task(operator=Operator.REWRITE, parents=(rng.choice(parents),), warnings=warnings) for _ in range(800)]
        return statistics.fmean(
            landscape.failure(llm.write(landscape, task, rng).program) is not None for task in tasks
        )

    assert failures(signatures) < 0.75 * failures(frozenset())


def test_claims_tell_something_but_not_all(landscape: Landscape) -> None:
    """Ideas with larger claims bring more on average; single ones mislead."""
    rng = Random(9)
    program = landscape.start()[0]
    count = len(families(landscape.genes))
    pairs = [
        (math.log(idea.expected_gain or 0.0), potential(landscape, program, idea.technique))
        for _ in range(200)
        for idea in SimulatedLLM().ideas(landscape, program, rng, count=count)
    ]
    claims, truths = zip(*pairs, strict=True)
    assert 0.3 < statistics.correlation(claims, truths) < 0.95


def test_ideas_are_different_and_the_best_claim_comes_first(landscape: Landscape) -> None:
    ideas = SimulatedLLM().ideas(landscape, landscape.start()[0], Random(10))
    assert len({idea.technique for idea in ideas}) == len(ideas) == min(4, len(families(landscape.genes)))
    assert [idea.expected_gain for idea in ideas] == sorted((idea.expected_gain or 0.0 for idea in ideas), reverse=True)


def test_an_idea_is_carried_out_on_its_own_family() -> None:
    landscape = find_ladder("ladder-a")
    start, rng = landscape.start()[0], Random(11)
    for idea in FAITHFUL.ideas(landscape, start, rng):
        positions = families(landscape.genes)[idea.technique]
        for operator in (Operator.MUTATE, Operator.REWRITE):
            draft = FAITHFUL.write(landscape, Task(operator=operator, parents=(start,), idea=idea), rng)
            assert any(draft.program[at] != start[at] for at in positions)


@pytest.mark.parametrize("name", LADDERS)
def test_the_recorded_author_claims_and_gains_as_the_model_did(name: str) -> None:
    """Of 23 children of the recorded model 20 gained something, 0.76 of the claim in the median (logs)."""
    landscape, rng = find_ladder(name), Random(1)
    start = landscape.start()[0]
    before = landscape.true_value(start) or 0.0
    pairs = []
    for _ in range(150):
        idea = rng.choice(RECORDED.ideas(landscape, start, rng))
        task = Task(operator=Operator.MUTATE, parents=(start,), idea=idea)
        value = landscape.true_value(RECORDED.write(landscape, task, rng).program)
        if value is not None and idea.expected_gain and idea.expected_gain > 1.1:
            pairs.append((math.log(idea.expected_gain), value - before))
    assert statistics.median(gain / claim for claim, gain in pairs) == pytest.approx(0.76, abs=0.15)
    assert statistics.fmean(gain > 0 for _, gain in pairs) > 0.7
