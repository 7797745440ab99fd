"""A run keeps its limits over all its sittings, and one that was cut anywhere ends as the undisturbed one."""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.parts import changed
from kbevolve.archive.records import BirthState, Evaluation, Kernel, Operator, Profile, StopReason
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import ProposerError
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import Settings
from kbevolve.evolve.proposers.base import Brief, Proposal
from kbevolve.evolve.search import search as search_module
from kbevolve.evolve.search.budget import LIMITS
from kbevolve.evolve.search.search import Search
from tests.evolve.doubles import KnownConfirmer, KnownEvaluator, ScriptedProposer, kernel, open_run
from tests.evolve.doubles import search as double_search
from tests.evolve.doubles import settings as double_settings


def settings(budget: Mapping[str, Any], **others: Any) -> Settings:
    # Intervals of many rounds are most of the time of such a run.
    tree = double_settings(**{"generations": 40} | others, evaluation={"confirm_rounds": 2}).model_dump()
    return Settings.from_tree(tree | {"budget": dict(budget)})


class Timed(KnownEvaluator):
    """Reports that every evaluation held the device for a second; half of it in phases beside others."""

    def evaluate(self, problem: Problem, kernel: Kernel) -> Evaluation:
        found = super().evaluate(problem, kernel)
        share = 0.1 * (found.timing.speedup or 0.0)
        return changed(
            found,
            phases={"build": 9.0, "trials": 0.25, "timing": 0.5, "profile": 0.25, "cleanup": 9.0},
            profile=Profile(roofline_share=share),
        )


def sat(archive: Archive, chosen: Settings, evaluator: KnownEvaluator | None = None, **options: Any) -> Search:
    """A search at the archive's run, or at a new one."""
    run = archive.runs.summaries()[0].run if archive.runs.summaries() else open_run(archive, chosen)
    return double_search(archive, run, chosen, evaluator or Timed(), **options)


@pytest.mark.parametrize("lookahead", [0, 3])
@pytest.mark.parametrize("limit", [1, 7, 12])
def test_a_run_judges_hardly_more_than_it_may(limit: int, lookahead: int) -> None:
    archive, evaluator = Archive(":memory:"), Timed()
    searching = sat(archive, settings({"evaluations": limit}, lookahead=lookahead), evaluator)
    assert searching.run() is StopReason.EVALUATIONS_SPENT
    assert limit <= evaluator.asked.total() < limit + 2, "the last generation of two islands is finished"
    assert searching.population.totals.evaluations == evaluator.asked.total()
    assert archive.runs.summaries()[0].stopped is StopReason.EVALUATIONS_SPENT


@pytest.mark.parametrize(
    ("budget", "reason"),
    [
        ({"device_seconds": 5.0}, StopReason.DEVICE_TIME_SPENT),
        ({"roofline_share": 0.2}, StopReason.ROOFLINE_REACHED),
        ({"target_speedup": 2.0}, StopReason.TARGET_REACHED),
    ],
)
@pytest.mark.parametrize("contests", [False, True])
def test_a_run_stops_at_its_limit(budget: Mapping[str, float], reason: StopReason, contests: bool) -> None:
    archive = Archive(":memory:")
    searching = sat(archive, settings(budget), confirmer=KnownConfirmer() if contests else None)
    assert searching.run() is reason
    if contests and reason is not StopReason.DEVICE_TIME_SPENT:
        champion = archive.runs.champion(archive.runs.get().id)
        assert champion
        assert champion.speedup >= 2.0
    if reason is StopReason.DEVICE_TIME_SPENT:
        assert searching.population.totals.device_seconds == searching.population.totals.evaluations


def test_luck_reaches_no_target() -> None:
    """The start is 0.82 times eager and looks ten times as fast; only what is confirmed counts."""
    archive, lucky = Archive(":memory:"), KnownEvaluator(luck={kernel().id: 10.0})
    searching = sat(archive, settings({"target_speedup": 4.0}, generations=3), lucky, confirmer=KnownConfirmer())
    assert searching.run() is StopReason.GENERATIONS


def writer(model: str, tokens: tuple[int, int]) -> dict[Operator, ScriptedProposer]:
    def answer(brief: Brief) -> Proposal:
        written = Kernel.from_source(f"class ModelNew: chance = {brief.rng.random()}\n")
        return Proposal(
            state=BirthState.CREATED, kernel=written, model=model, prompt_tokens=tokens[0], completion_tokens=tokens[1]
        )

    scripted = ScriptedProposer(answer)
    return dict.fromkeys(
        (*(Operator.MUTATE, Operator.REWRITE, Operator.CROSS, Operator.REPAIR), Operator.TUNE), scripted
    )


def test_tokens_and_dollars_stop_a_run(tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text("prices:\n  house-*: {prompt: 100, completion: 1000}\n")
    for budget, reason in (
        ({"tokens": 3_000}, StopReason.TOKENS_SPENT),
        ({"dollars": 1.0, "prices": file}, StopReason.DOLLARS_SPENT),
    ):
        archive = Archive(":memory:")
        searching = sat(archive, settings(budget, islands=1), proposers=writer("house-7", (1_000, 100)))
        assert searching.run() is reason
        spent = searching.budget.spent(searching.population.totals)
        # 1,100 tokens and 20 cents a child.
        assert (spent.tokens, spent.dollars) in [(3_300, None), (5_500, pytest.approx(1.0))]


def test_a_model_that_turns_out_to_have_no_price_stops_a_run_with_its_name() -> None:
    archive = Archive(":memory:")
    searching = sat(archive, settings({"dollars": 5.0}), proposers=writer("stranger", (10, 10)))
    with pytest.raises(ProposerError, match="stranger"):
        searching.run()


def test_wall_time_counts_all_sessions() -> None:
    archive, chosen, first, again = Archive(":memory:"), settings({"wall_seconds": 10}), Timed(), Timed()
    assert sat(archive, chosen, first, elapsed=first.asked.total).run() is StopReason.WALL_TIME_SPENT
    generations = archive.run_view(archive.runs.get()).last_generation()
    assert first.asked.total() == 10
    assert sat(archive, chosen, again, elapsed=lambda: 100.0).run() is StopReason.WALL_TIME_SPENT
    assert again.asked.total() == 0
    assert archive.run_view(archive.runs.get()).last_generation() == generations


# ---- resumed ------------------------------------------------------------------------------------------------------


def facts(archive: Archive) -> tuple[Any, ...]:
    run = archive.runs.get()
    births = sorted((one.id, one.kernel, one.state, one.parents) for one in archive.runs.births(run.id))
    return (
        births,
        archive.runs.placements(run.id),
        sorted(archive.runs.evaluations(run.id)),
        archive.runs.summary(run).stopped,
    )


def test_what_is_spent_stays_spent_and_a_larger_budget_goes_on() -> None:
    archive = Archive(":memory:")
    sat(archive, settings({"evaluations": 9}, lookahead=2)).run()
    before, again = facts(archive), Timed()
    assert sat(archive, settings({"evaluations": 9}, lookahead=2), again).run() is StopReason.EVALUATIONS_SPENT
    assert (facts(archive), again.asked.total()) == (before, 0)
    more = sat(archive, settings({"evaluations": 15}, lookahead=2), again)
    assert more.run() is StopReason.EVALUATIONS_SPENT
    assert 15 <= len(archive.runs.evaluations(archive.runs.get().id)) < 17
    assert more.population.totals.evaluations == len(archive.runs.evaluations(archive.runs.get().id))
    assert sat(archive, settings({}, lookahead=2, generations=12)).run() is StopReason.GENERATIONS


def test_a_smaller_budget_finishes_what_was_begun() -> None:
    archive, chosen = Archive(":memory:"), settings({}, lookahead=3, generations=20)
    with pytest.raises(KeyboardInterrupt):
        sat(archive, chosen, KnownEvaluator(interrupt_at=12)).run()
    begun = archive.run_view(archive.runs.get()).last_generation()
    searching = sat(archive, settings({"evaluations": 5}, lookahead=3, generations=20))
    assert searching.run() is StopReason.EVALUATIONS_SPENT
    run = archive.runs.get()
    assert archive.run_view(run).last_generation() == archive.run_view(run).last_ended() == begun
    born = {one.kernel for one in archive.runs.births(run.id) if one.kernel}
    assert born == set(archive.runs.evaluations(run.id)), "every kernel that was born is judged"


BUDGETS = ({"evaluations": 11}, {"device_seconds": 8.0}, {"target_speedup": 2.3}, {"roofline_share": 0.23})


@pytest.mark.parametrize(
    ("budget", "lookahead", "step"),
    [
        ({"evaluations": 11}, 2, 4),
        *(pytest.param(budget, ahead, 2, marks=pytest.mark.slow) for budget in BUDGETS for ahead in (0, 2)),
    ],
)
def test_a_run_with_limits_that_is_cut_anywhere_ends_as_the_undisturbed_one(
    budget: Mapping[str, float], lookahead: int, step: int
) -> None:
    chosen = settings(budget, lookahead=lookahead)
    whole, undisturbed, contests = Archive(":memory:"), Timed(), KnownConfirmer()
    reason = sat(whole, chosen, undisturbed, confirmer=contests).run()
    assert reason in LIMITS
    for cut in range(0, undisturbed.asked.total(), step):
        archive, first, second = Archive(":memory:"), Timed(interrupt_at=cut), Timed()
        with pytest.raises(KeyboardInterrupt):
            sat(archive, chosen, first, confirmer=KnownConfirmer()).run()
        assert sat(archive, chosen, second, confirmer=KnownConfirmer()).run() is reason
        assert facts(archive) == facts(whole), cut
        assert first.asked + second.asked == undisturbed.asked
    for cut in range(0, len(contests.met), step - 1):
        archive = Archive(":memory:")
        with pytest.raises(KeyboardInterrupt):
            sat(archive, chosen, confirmer=KnownConfirmer(interrupt_at=cut)).run()
        sat(archive, chosen, confirmer=KnownConfirmer()).run()
        assert facts(archive) == facts(whole), cut


@pytest.mark.slow
@pytest.mark.parametrize("lookahead", [0, 2])
@pytest.mark.parametrize("written", [False, True])
def test_a_run_that_is_killed_around_the_end_of_a_generation_keeps_its_target(
    monkeypatch: pytest.MonkeyPatch, lookahead: int, written: bool
) -> None:
    """Before it, the contest that reached the target is in the archive already; after it, later children are open."""
    chosen = settings({"target_speedup": 2.3}, lookahead=lookahead)
    whole = Archive(":memory:")
    sat(whole, chosen, confirmer=KnownConfirmer()).run()
    closings = whole.run_view(whole.runs.get()).last_ended()
    assert closings is not None
    for cut in range(closings + 1):
        archive = Archive(":memory:")
        original = archive.add_generation_end

        def until_cut(run_id: str, generation: int, cut: int = cut, original: Any = original) -> None:
            if generation < cut or written:
                original(run_id, generation)
            if generation == cut:
                raise KeyboardInterrupt

        searching = sat(archive, chosen, confirmer=KnownConfirmer())
        with monkeypatch.context() as patch:
            patch.setattr(archive, "add_generation_end", until_cut)
            with pytest.raises(KeyboardInterrupt):
                searching.run()
        assert sat(archive, chosen, confirmer=KnownConfirmer()).run() is StopReason.TARGET_REACHED
        assert facts(archive) == facts(whole), cut


def test_children_that_were_asked_for_before_the_target_was_reached_are_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The model is slow, and the run is killed right after the contest: nothing of later generations is written yet."""
    released, late = threading.Event(), set[str]()

    def answer(brief: Brief) -> Proposal:
        values = {name: brief.rng.choice(choices) for name, choices in (("UNROLL", (1, 2, 4, 8)), ("TILE", (8, 32)))}
        written = Kernel.from_source(f"{kernel(**values).source}\nCHANCE = {brief.rng.random()}\n")
        if written.id in late:
            assert released.wait(60)
        return Proposal(state=BirthState.CREATED, kernel=written)

    chosen = settings({"target_speedup": 1.8}, islands=1, lookahead=2, tune_share=0.0)
    writing = (Operator.MUTATE, Operator.REWRITE, Operator.CROSS, Operator.REPAIR)

    def begin(archive: Archive) -> Search:
        proposers = dict.fromkeys(writing, ScriptedProposer(answer))
        return sat(archive, chosen, proposers=proposers, confirmer=KnownConfirmer())

    whole = Archive(":memory:")
    assert begin(whole).run() is StopReason.TARGET_REACHED
    made = whole.runs.confirmations(whole.runs.get().id)
    reached = next(one.generation for one in made if one.speedup >= 1.8)
    late.update(str(one.kernel) for one in whole.runs.births(whole.runs.get().id) if one.generation > reached)
    assert reached > 1
    assert len(late) == 2

    archive = Archive(":memory:")
    write = archive.add_contest

    def until_reached(confirmations: Any, failures: Any = ()) -> None:
        write(confirmations, failures)
        if confirmations[0].generation == reached:
            raise KeyboardInterrupt

    searching = begin(archive)
    with monkeypatch.context() as patch:
        patch.setattr(archive, "add_contest", until_reached)
        patch.setattr(search_module, "INTERRUPTED_SECONDS", 0.0)
        with pytest.raises(KeyboardInterrupt):
            searching.run()
    assert archive.run_view(archive.runs.get()).last_generation() == reached
    released.set()
    assert begin(archive).run() is StopReason.TARGET_REACHED
    assert facts(archive) == facts(whole)
