"""The loop: what it keeps, that it replays, and that a resumed run ends where an undisturbed one does."""

from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.parts import changed
from kbevolve.archive.records import BirthState, Evaluation, Kernel, Operator, StopReason, Verdict
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import ProposerError
from kbevolve.configs.problem import Problem
from kbevolve.evolve.proposers.base import Brief, Proposal
from tests.evolve.doubles import KnownEvaluator, ScriptedProposer, kernel, open_run, search, settings


def facts(archive: Archive, run_id: str) -> tuple[Any, ...]:
    """Everything a run left, but how long proposing took and in which order births were written."""
    births = sorted(
        (birth.id, birth.kernel, birth.state, birth.parents, birth.note) for birth in archive.runs.births(run_id)
    )
    placements = [(p.island, p.niche, p.kernel, p.generation, p.via) for p in archive.runs.placements(run_id)]
    return births, placements, sorted(archive.runs.evaluations(run_id).items())


def test_a_run_finds_better_kernels_and_says_why_it_stopped() -> None:
    archive, chosen = Archive(":memory:"), settings(generations=20)
    run = open_run(archive, chosen)
    searching = search(archive, run, chosen, KnownEvaluator())
    assert searching.run() is StopReason.GENERATIONS
    best = searching.population.best()
    assert best is not None
    assert best.evaluation.timing.speedup is not None
    assert best.evaluation.timing.speedup > 2.5  # the seed has 0.82, the optimum 3.3
    assert len(archive.runs.births(run.id)) == 2 + 2 * 20


def test_the_same_seed_replays_and_another_does_not() -> None:
    left = []
    for seed in (7, 7, 8):
        archive, chosen = Archive(":memory:"), settings(seed=seed)
        run = open_run(archive, chosen)
        search(archive, run, chosen, KnownEvaluator()).run()
        left.append(facts(archive, run.id))
    assert left[0] == left[1]
    assert left[0] != left[2]


class OvertakenEvaluator(KnownEvaluator):
    """Another run, which shares the archive's file, has its verdict on each kernel first."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def evaluate(self, problem: Problem, kernel: Kernel) -> Evaluation:
        found = super().evaluate(problem, kernel)
        names = ("speedup", "speedup_low", "speedup_high")
        other = changed(found, verdict=Verdict.WRONG, message="wrong", **dict.fromkeys(names))
        if found.timing.speedup and int(kernel.id, 16) % 3:
            factor = 0.5 + int(kernel.id, 16) % 7 / 7
            other = changed(found, **{name: factor * getattr(found.timing, name) for name in names})
        with Archive(self.path) as archive:
            archive.add_found([(problem, kernel, other)])
        return found


def test_a_run_knows_the_verdicts_that_count_where_another_had_them_first(tmp_path: Path) -> None:
    path, chosen = tmp_path / "shared.db", settings(generations=6)
    with Archive(path) as archive:
        run = open_run(archive, chosen)
        searching = search(archive, run, chosen, OvertakenEvaluator(path))
        searching.run()
        resumed = search(archive, run, chosen, KnownEvaluator())
        resumed.run()
        first, again = searching.population, resumed.population
        assert first.memory() == again.memory()
        assert first.totals.verdicts == again.totals.verdicts
        assert first.totals.verdicts[Verdict.WRONG] > 1
        assert [*first.ranked()] == [*again.ranked()]


@pytest.mark.parametrize("cut", [pytest.param(cut, marks=pytest.mark.slow if cut % 4 else ()) for cut in range(17)])
def test_a_run_interrupted_anywhere_ends_as_the_undisturbed_one(tmp_path: Path, cut: int) -> None:
    chosen = settings()
    whole = Archive(":memory:")
    run = open_run(whole, chosen)
    undisturbed = KnownEvaluator()
    search(whole, run, chosen, undisturbed).run()

    with Archive(tmp_path / "cut.db") as archive:
        open_run(archive, chosen)
        first = KnownEvaluator(interrupt_at=cut)
        with pytest.raises(KeyboardInterrupt):
            search(archive, run, chosen, first).run()
    with Archive(tmp_path / "cut.db") as archive:
        second = KnownEvaluator()
        search(archive, run, chosen, second).run()
        assert facts(archive, run.id) == facts(whole, run.id)
    assert first.asked + second.asked == undisturbed.asked, "a kernel was measured twice, or not at all"


@pytest.mark.parametrize("write", ["add_birth", "add_evaluation", "add_placement"])
@pytest.mark.parametrize("cut", [2, *(pytest.param(cut, marks=pytest.mark.slow) for cut in (0, 4))])
def test_a_run_killed_between_two_writes_ends_as_the_undisturbed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: str, cut: int
) -> None:
    chosen = settings()
    whole = Archive(":memory:")
    run = open_run(whole, chosen)
    search(whole, run, chosen, KnownEvaluator()).run()

    with Archive(tmp_path / "cut.db") as archive:
        open_run(archive, chosen)
        original, calls = getattr(archive, write), iter(range(1000))

        def until_cut(*arguments: Any, **named: Any) -> None:
            if next(calls) == cut:
                raise KeyboardInterrupt
            original(*arguments, **named)

        monkeypatch.setattr(archive, write, until_cut)
        with pytest.raises(KeyboardInterrupt):
            search(archive, run, chosen, KnownEvaluator()).run()
    with Archive(tmp_path / "cut.db") as archive:
        search(archive, run, chosen, KnownEvaluator()).run()
        assert facts(archive, run.id) == facts(whole, run.id)


def test_a_finished_run_goes_further_when_asked_to() -> None:
    archive = Archive(":memory:")
    run = open_run(archive, settings(generations=4))
    search(archive, run, settings(generations=4), KnownEvaluator()).run()
    evaluator = KnownEvaluator()
    search(archive, run, settings(generations=8), evaluator).run()

    whole = Archive(":memory:")
    open_run(whole, settings(generations=8))
    search(whole, run, settings(generations=8), KnownEvaluator()).run()
    assert [birth.kernel for birth in archive.runs.births(run.id)] == [
        birth.kernel for birth in whole.runs.births(run.id)
    ]


def test_no_kernel_is_measured_twice_even_by_a_second_run() -> None:
    archive, chosen, evaluator = Archive(":memory:"), settings(), KnownEvaluator()
    for number in (1, 2):
        run = open_run(archive, chosen, f"double-{number}")
        search(archive, run, chosen, evaluator).run()
    assert max(evaluator.asked.values()) == 1
    first, second = (facts(archive, f"double-{number}") for number in (1, 2))
    assert [row[1:] for row in first[0]] == [row[1:] for row in second[0]], "remembered evaluations changed the search"


def test_migration_brings_the_best_to_the_next_island() -> None:
    archive, chosen = Archive(":memory:"), settings(generations=3, islands=3, migration_every=3)
    run = open_run(archive, chosen)
    searching = search(archive, run, chosen, KnownEvaluator())
    searching.run()
    arrived = [placement for placement in archive.runs.placements(run.id) if placement.via == "migration"]
    assert arrived
    assert {placement.generation for placement in arrived} == {3}
    best = searching.population.best()
    assert best is not None
    homes = [island.index for island in searching.population.islands if best in island.members]
    assert len(homes) >= 2


def test_a_small_space_is_exhausted_and_the_run_says_so() -> None:
    tiny = Kernel.from_source("PACK = 0  # tune: 0, 1\n\nclass ModelNew: ...\n")
    archive, chosen = Archive(":memory:"), settings(generations=50)
    run = open_run(archive, chosen)
    evaluator = KnownEvaluator()
    assert search(archive, run, chosen, evaluator, starts=[tiny]).run() is StopReason.EXHAUSTED
    assert evaluator.asked.total() == 2
    assert max(birth.generation for birth in archive.runs.births(run.id)) < 10


def test_without_a_correct_start_the_run_stops() -> None:
    archive, chosen = Archive(":memory:"), settings()
    run = open_run(archive, chosen)
    assert search(archive, run, chosen, KnownEvaluator(), starts=[kernel(WRONG=1)]).run() is StopReason.NO_SEED
    assert {birth.generation for birth in archive.runs.births(run.id)} == {0}


def written(text: str) -> Proposal:
    return Proposal(state=BirthState.CREATED, kernel=Kernel.from_source(text), prompt="p", reply=text, prompt_tokens=10)


def with_model(answer: ScriptedProposer) -> dict[Operator, ScriptedProposer]:
    tuner = ScriptedProposer(lambda brief: Proposal(state=BirthState.EXHAUSTED))
    return {
        **dict.fromkeys((Operator.MUTATE, Operator.REWRITE, Operator.CROSS, Operator.REPAIR), answer),
        Operator.TUNE: tuner,
    }


def test_a_failed_child_gets_one_repair_turn_with_the_message() -> None:
    def answer(brief: Brief) -> Proposal:
        number = f"{brief.rng.random()}"
        if brief.operator is Operator.REPAIR:
            assert brief.repair is not None
            assert brief.repair.evaluation.message == "wrong by 3"
            return written(f"class ModelNew: repaired = {number}\n")
        return written(f"class ModelNew: broken = {number}\n")

    archive, chosen = Archive(":memory:"), settings(generations=3, islands=1, tune_share=0, repair_turns=1)
    run = open_run(archive, chosen)
    proposer = ScriptedProposer(answer)
    search(archive, run, chosen, KnownEvaluator(), proposers=with_model(proposer)).run()
    repairs = [birth for birth in archive.runs.births(run.id) if birth.operator is Operator.REPAIR]
    children = [birth for birth in archive.runs.births(run.id) if birth.generation and birth.slot == 0]
    assert len(repairs) == len(children) == 3
    assert all(repair.parents[0] == child.kernel for repair, child in zip(repairs, children, strict=True))
    assert proposer.briefs[-2].learnt.failures, "earlier failures are shown to later children"


def test_an_answer_that_arrived_is_kept_when_another_island_has_none() -> None:
    def answer(brief: Brief) -> Proposal:
        if brief.parents[0].kernel.id == kernel(UNROLL=2).id:
            raise ProposerError("the endpoint is gone; start it again")
        return written(f"class ModelNew: paid = {brief.rng.random()}\n")

    archive, chosen = Archive(":memory:"), settings(generations=1, islands=2, tune_share=0)
    run = open_run(archive, chosen)
    searching = search(archive, run, chosen, KnownEvaluator(), proposers=with_model(ScriptedProposer(answer)))
    first, second = searching.generations.starts
    searching.generations.starts = [first, [type(second[0])(kernel=kernel(UNROLL=2), note="seed")]]
    with pytest.raises(ProposerError, match="endpoint is gone"):
        searching.run()
    assert [birth.island for birth in archive.runs.births(run.id) if birth.generation == 1] == [0]


def test_observers_see_every_child_once() -> None:
    archive, chosen = Archive(":memory:"), settings()
    run = open_run(archive, chosen)
    done: list[str] = []
    search(
        archive,
        run,
        chosen,
        KnownEvaluator(),
        observer=lambda event: done.append(event.birth.id) if event.birth and event.done else None,
    ).run()
    assert done == [birth.id for birth in archive.runs.births(run.id)]


def test_an_exhausted_run_stops_when_its_open_generations_are_closed() -> None:
    tiny = Kernel.from_source("PACK = 0  # tune: 0, 1\n\nclass ModelNew: ...\n")
    archive, asked = Archive(":memory:"), settings(generations=50, lookahead=3)
    run = open_run(archive, asked)
    evaluator = KnownEvaluator()
    assert search(archive, run, asked, evaluator, starts=[tiny], width=4).run() is StopReason.EXHAUSTED
    births = archive.runs.births(run.id)
    assert births[-1].generation < 12
    assert len({birth.generation for birth in births if birth.kernel}) <= 2, "equal kernels were created again"
    again = search(archive, run, asked, evaluator, starts=[tiny], width=4)
    assert again.run() is StopReason.EXHAUSTED
    assert archive.runs.births(run.id) == births
