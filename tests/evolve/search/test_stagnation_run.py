"""A run without improvement explores, backtracks and stops; an interruption makes no difference."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.records import BirthState, Kernel, Operator, Placement, StopReason
from kbevolve.archive.store import Archive
from kbevolve.configs.settings import Settings
from kbevolve.evolve.proposers.base import Brief, Proposal
from kbevolve.evolve.search.search import Search
from kbevolve.islands.stagnation import Stage
from tests.evolve.doubles import KnownConfirmer, KnownEvaluator, ScriptedProposer, kernel, open_run, search
from tests.evolve.doubles import settings as double_settings

#: At 60 generations of two islands a run takes the next stage every 25 evaluations.
WINDOW = 25


def settings(**changes: Any) -> Settings:
    return double_settings(**{"generations": 60, "islands": 2} | changes, evaluation={"confirm_rounds": 2})


def without_idea(brief: Brief) -> Proposal:
    """A new kernel, no faster than the starting one; of another niche now and then."""
    number = brief.rng.random()
    niche = "tl.dot(tl.load(x), tl.load(x))" if number < 0.3 else "tl.load(x)"
    source = f"import triton\n\n\n@triton.jit\ndef k(x):\n    {niche}\n\n\nclass ModelNew: number = {number}\n"
    return Proposal(
        state=BirthState.CREATED, kernel=Kernel.from_source(source), note=f"{brief.island.stage.name} {number}"
    )


def bred(
    archive: Archive, chosen: Settings, *, answer: Any = without_idea, evaluator: KnownEvaluator | None = None
) -> tuple[Search, ScriptedProposer]:
    run = open_run(archive, chosen) if not archive.runs.summaries() else archive.runs.get()
    writer = ScriptedProposer(answer)
    proposers = dict.fromkeys((Operator.MUTATE, Operator.REWRITE, Operator.CROSS, Operator.TUNE), writer)
    searching = search(
        archive, run, chosen, evaluator or KnownEvaluator(), proposers=proposers, confirmer=KnownConfirmer()
    )
    return searching, writer


def restarts(archive: Archive) -> list[Placement]:
    return [one for one in archive.runs.placements(archive.runs.get().id) if one.via == "restart"]


def test_it_explores_then_goes_back_then_stops() -> None:
    archive = Archive(":memory:")
    searching, writer = bred(archive, settings())
    assert searching.run() is StopReason.STAGNATION
    stages = [brief.island.stage for brief in writer.briefs]
    assert stages == sorted(stages)
    assert {stage: stages.count(stage) for stage in Stage} == pytest.approx(
        {Stage.SEARCHING: WINDOW, Stage.EXPLORING: WINDOW, Stage.BACKTRACKING: WINDOW, Stage.OVER: 0}, abs=2
    )
    (fresh,) = restarts(archive)
    assert fresh.kernel in archive.runs.kernels(archive.runs.get().id)
    assert archive.runs.summaries()[0].stopped is StopReason.STAGNATION


def test_an_improvement_begins_the_count_anew() -> None:
    def late(brief: Brief) -> Proposal:
        if brief.island.stage is Stage.BACKTRACKING and not brief.known(kernel(UNROLL=8).id):
            return Proposal(state=BirthState.CREATED, kernel=kernel(UNROLL=8))
        return without_idea(brief)

    archive = Archive(":memory:")
    searching, writer = bred(archive, settings(generations=110, patience=0.1), answer=late)
    assert searching.run() is StopReason.STAGNATION
    stages = [brief.island.stage for brief in writer.briefs]
    assert stages != sorted(stages)
    assert len(restarts(archive)) == 2, "one for each time that nothing came"


@pytest.mark.parametrize("changes", [{"patience": 0.0}, {"strategy": "best-of-n"}])
def test_a_run_without_patience_or_stages_does_not_stop(changes: dict[str, Any]) -> None:
    archive = Archive(":memory:")
    searching, writer = bred(archive, settings(**changes))
    assert searching.run() is StopReason.GENERATIONS
    assert {brief.island.stage for brief in writer.briefs} == {Stage.SEARCHING}
    assert not restarts(archive)


def facts(archive: Archive) -> Any:
    run = archive.runs.get()
    births = [(one.id, one.operator, one.kernel, one.parents, one.note) for one in archive.runs.births(run.id)]
    return (
        births,
        archive.runs.placements(run.id),
        archive.runs.confirmations(run.id),
        archive.runs.summary(run).stopped,
    )


@cache
def undisturbed() -> Any:
    whole = Archive(":memory:")
    bred(whole, settings(lookahead=1))[0].run()
    return facts(whole)


@pytest.mark.parametrize(
    "cut", [52, 75, *(pytest.param(cut, marks=pytest.mark.slow) for cut in (10, 27, 50, 51, 53, 54, 60))]
)
def test_an_interrupted_run_ends_as_the_undisturbed_one(tmp_path: Path, cut: int) -> None:
    with Archive(tmp_path / "cut.db") as archive:
        first = KnownEvaluator(interrupt_at=cut)
        with pytest.raises(KeyboardInterrupt):
            bred(archive, settings(lookahead=1), evaluator=first)[0].run()
    with Archive(tmp_path / "cut.db") as archive:
        second = KnownEvaluator()
        assert bred(archive, settings(lookahead=1), evaluator=second)[0].run() is StopReason.STAGNATION
        assert facts(archive) == undisturbed()
    assert max((first.asked + second.asked).values()) == 1


def test_a_stopped_run_continues_with_other_settings() -> None:
    archive = Archive(":memory:")
    bred(archive, settings())[0].run()
    evaluator = KnownEvaluator()
    assert bred(archive, settings(patience=0.0), evaluator=evaluator)[0].run() is StopReason.GENERATIONS
    assert 30 < evaluator.asked.total() < 60
