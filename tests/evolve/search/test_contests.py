"""Contests of a run: what is confirmed and written, and that a run killed anywhere ends the same."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.records import Comparison, Confirmation, Kernel, StopReason, Verdict
from kbevolve.archive.store import Archive
from kbevolve.configs.settings import Settings
from kbevolve.evaluators.timing.contest import Contest
from kbevolve.evolve.search.confirmation import confirmations_of
from kbevolve.evolve.search.events import Event
from tests.evolve.doubles import KnownConfirmer, KnownEvaluator, kernel, open_run, search, speed_of
from tests.evolve.doubles import settings as double_settings


def settings(*, evaluation: Mapping[str, int] | None = None, **others: Any) -> Settings:
    """Contests of three rounds: intervals of many rounds take most of the time of such a run."""
    return double_settings(evaluation={"confirm_rounds": 3, **(evaluation or {})}, **others)


NAIVE, GOOD, BEST = kernel(), kernel(UNROLL=4, TILE=32), kernel(UNROLL=8, TILE=32, PACK=1)


def of(contest: Contest, **changes: Any) -> dict[str, Confirmation]:
    facts: dict[str, Any] = {"run": "r", "generation": 3, "purpose": "challenge", "champion": None}
    return {one.kernel: one for one in confirmations_of(contest, **facts | changes)}


def contest(failed: tuple[str, ...] = (), **milliseconds: float) -> Contest:
    wobble = (1.0, 1.001, 0.999, 1.002, 1.0)
    return Contest(
        reference=tuple((10 * step, 10 * step) for step in wobble),
        times={name: tuple((ms * step, ms * step, 99.0) for step in wobble) for name, ms in milliseconds.items()},
        failed=dict.fromkeys(failed),
        tie=0.01,
    )  # fmt: skip


def test_a_challenger_is_measured_beside_the_champion_and_the_reference() -> None:
    found = of(contest(old=5.0, new=4.0), champion="old")
    assert set(found) == {"new"}, "the champion keeps the number it has"
    new = found["new"]
    assert (new.rival, new.comparison, new.purpose, new.generation) == ("old", Comparison.FASTER, "challenge", 3)
    assert new.ratio == pytest.approx(1.25)
    assert new.speedup == pytest.approx(2.5)
    assert new.ratio_low <= new.ratio <= new.ratio_high
    assert new.speedup_low <= new.speedup <= new.speedup_high
    assert (new.time_ms, new.reference_ms) == (4.0, 10.0)
    assert [(block.role, block.round) for block in new.blocks[:4]] == [
        ("child", 0), ("reference", 0), ("rival", 0), ("child", 1),
    ]  # fmt: skip
    assert len(new.blocks) == 3 * 5


def test_no_kernel_is_faster_within_the_tie() -> None:
    assert of(contest(old=5.0, new=4.96), champion="old")["new"].comparison is Comparison.TIE
    assert of(contest(old=5.0, new=5.5), champion="old")["new"].comparison is Comparison.SLOWER


def test_the_first_is_measured_against_the_reference_alone() -> None:
    new = of(contest(new=4.0))["new"]
    assert (new.rival, new.ratio, new.comparison) == (None, new.speedup, Comparison.FASTER)
    assert {block.role for block in new.blocks} == {"child", "reference"}


@pytest.mark.parametrize(
    ("published", "expected"), [(2.0, Comparison.FASTER), (2.5, Comparison.TIE), (3.0, Comparison.SLOWER)]
)
def test_without_memory_for_the_champion_its_published_speedup_counts(published: float, expected: Comparison) -> None:
    new = of(contest(new=4.0), champion="old", published=published)["new"]
    assert (new.rival, new.comparison) == (None, expected)
    assert new.ratio == new.speedup == pytest.approx(2.5)
    fallen = of(contest(failed=("old",), new=4.0), champion="old", purpose="final", published=published)["new"]
    assert fallen.comparison is Comparison.FASTER, "a champion that failed has no title"


def test_a_final_confirms_all_its_kernels() -> None:
    found = of(contest(old=5.0, new=4.0, other=8.0), champion="old", purpose="final")
    assert {name: one.rival for name, one in found.items()} == {"old": None, "new": "old", "other": "old"}
    assert found["old"].speedup == pytest.approx(2.0)
    found = of(contest(failed=("old",), new=4.0, other=8.0), champion="old", purpose="final")
    assert {name: one.rival for name, one in found.items()} == {"new": None, "other": None}


# ---- a whole run ---------------------------------------------------------------------------------------------------


def facts(archive: Archive, run_id: str) -> tuple[Any, ...]:
    """Everything that a run with contests left but moments and the order of writing births."""
    births = [(birth.id, birth.kernel, birth.state) for birth in archive.runs.births(run_id)]
    evaluations = sorted((one.kernel, one.verdict.name) for one in every_evaluation(archive, run_id))
    return (
        births,
        archive.runs.placements(run_id),
        evaluations,
        archive.runs.confirmations(run_id),
        archive.runs.champion(run_id),
    )


def every_evaluation(archive: Archive, run_id: str) -> list[Any]:
    return [one for kernel_id in archive.runs.kernels(run_id) for one in archive.kernels.evaluations(kernel_id)]


def bred(chosen: Settings, starts: list[Kernel], confirmer: KnownConfirmer, **options: Any) -> tuple[Archive, Any]:
    archive = Archive(":memory:")
    run = open_run(archive, chosen)
    evaluator = KnownEvaluator(luck=options.pop("luck", None))
    searching = search(archive, run, chosen, evaluator, starts=starts, confirmer=confirmer, **options)
    searching.run()
    return archive, searching


ONLY_STARTS = settings(generations=0)


def test_the_published_speedup_is_the_confirmed_one() -> None:
    confirmer = KnownConfirmer()
    archive, searching = bred(ONLY_STARTS, [NAIVE, GOOD], confirmer, luck={GOOD.id: 1.5})
    true = speed_of({"UNROLL": "4", "TILE": "32"})
    assert searching.population.best().evaluation.timing.speedup == pytest.approx(1.5 * true)
    champion = archive.runs.champion("double-1")
    assert champion is not None
    assert champion.kernel == GOOD.id
    assert champion.speedup == pytest.approx(true)
    assert archive.runs.summary(archive.runs.get()).best_speedup == champion.speedup
    assert confirmer.met[0] == (GOOD.id,), "the first champion meets the reference alone"


def test_luck_makes_no_champion() -> None:
    lucky, true = kernel(UNROLL=2, TILE=32), GOOD
    confirmer = KnownConfirmer()
    archive, _ = bred(settings(generations=6), [lucky, true], confirmer, luck={lucky.id: 3.0})
    challenges = [one for one in archive.runs.confirmations("double-1") if one.purpose == "challenge"]
    assert challenges[0].kernel == lucky.id, "it looks best"
    champion = archive.runs.champion("double-1")
    assert champion is not None
    assert champion.kernel != lucky.id
    assert sum(lucky.id == ids[0] for ids in confirmer.met if len(ids) < 3) == 1, "it challenged once"
    assert all(one.comparison is Comparison.FASTER or one.kernel != champion.kernel for one in challenges)


def test_a_challenger_that_does_not_pass_again_is_no_champion_and_not_the_best() -> None:
    confirmer = KnownConfirmer(failing={BEST.id})
    archive, searching = bred(ONLY_STARTS, [NAIVE, GOOD, BEST], confirmer)
    champion = archive.runs.champion("double-1")
    assert champion is not None
    assert champion.kernel == GOOD.id
    assert searching.population.best().kernel.id == GOOD.id
    first, second = archive.kernels.evaluations(BEST.id)
    assert (first.verdict, second.verdict, second.message) == (Verdict.CORRECT, Verdict.CRASHED, "not again")
    assert archive.runs.summary(archive.runs.get()).best_kernel == GOOD.id


class FailingLater(KnownConfirmer):
    """The champion passes when it takes the title, not when it defends it."""

    def compete(self, problem: Any, kernels: Any, *, rounds: int) -> Contest:
        self.failing = {GOOD.id} if len(kernels) > 1 else ()
        return super().compete(problem, kernels, rounds=rounds)


def test_a_champion_that_fails_loses_the_title_to_the_one_before() -> None:
    chosen = settings(generations=1, islands=1)
    archive = Archive(":memory:")
    run = open_run(archive, chosen)
    confirmer = FailingLater()
    # Looks slower than the first and is faster: found out only in the final.
    evaluator = KnownEvaluator(luck={BEST.id: 0.5})
    search(archive, run, chosen, evaluator, starts=[GOOD, BEST], confirmer=confirmer).run()
    champion = archive.runs.champion(run.id)
    assert champion is not None
    assert champion.kernel != GOOD.id
    assert archive.runs.failed(run.id) == {GOOD.id}


def test_the_final_finds_an_unlucky_kernel() -> None:
    confirmer = KnownConfirmer()
    archive, _ = bred(ONLY_STARTS, [NAIVE, GOOD, BEST], confirmer, luck={BEST.id: 0.5})
    *_, final = confirmer.met
    assert confirmer.met == [(GOOD.id,), final]
    assert set(final) == {GOOD.id, BEST.id, NAIVE.id}
    champion = archive.runs.champion("double-1")
    assert champion is not None
    assert (champion.kernel, champion.purpose, champion.rival) == (BEST.id, "final", GOOD.id)


@pytest.mark.parametrize(
    ("evaluation", "contests"), [({"confirm_rounds": 0}, 0), ({"finalists": 0}, 1), ({"finalists": 1}, 1)]
)
def test_contests_can_be_left_out(evaluation: dict[str, int], contests: int) -> None:
    confirmer = KnownConfirmer()
    bred(settings(generations=0, evaluation=evaluation), [NAIVE, GOOD], confirmer)
    assert len(confirmer.met) == contests


def test_an_event_precedes_each_contest_and_has_the_champion() -> None:
    events: list[Event] = []
    bred(ONLY_STARTS, [NAIVE, GOOD], KnownConfirmer(), observer=events.append)
    announced = [event.contest for event in events if event.contest]
    assert announced[0] == (GOOD.id,)
    assert events[0].champion is None
    assert events[-1].champion is not None
    assert events[-1].champion.kernel == GOOD.id


# ---- killed and resumed --------------------------------------------------------------------------------------------

CHOSEN = settings(generations=6)
STARTS = [NAIVE, kernel(UNROLL=2)]
#: Kernels that look better than they are, or fail when they are judged again, among those that the run breeds.
LUCK = {kernel(UNROLL=2, TILE=32).id: 1.4, kernel(UNROLL=4, TILE=32).id: 1.3}
FAILING = {kernel(UNROLL=4, TILE=32, PACK=1).id, kernel(UNROLL=2, TILE=16).id}


def undisturbed() -> tuple[Archive, KnownConfirmer]:
    confirmer = KnownConfirmer(failing=FAILING)
    archive, _ = bred(CHOSEN, STARTS, confirmer, luck=LUCK)
    return archive, confirmer


def resumed(path: Path) -> tuple[tuple[Any, ...], KnownConfirmer]:
    confirmer = KnownConfirmer(failing=FAILING)
    with Archive(path) as archive:
        run = archive.runs.get()
        search(archive, run, CHOSEN, KnownEvaluator(luck=LUCK), starts=STARTS, confirmer=confirmer).run()
        return facts(archive, run.id), confirmer


def cut_run(path: Path, confirmer: KnownConfirmer) -> None:
    with Archive(path) as archive:
        run = open_run(archive, CHOSEN)
        searching = search(archive, run, CHOSEN, KnownEvaluator(luck=LUCK), starts=STARTS, confirmer=confirmer)
        with pytest.raises(KeyboardInterrupt):
            searching.run()


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_run_killed_within_any_contest_ends_as_the_undisturbed_one(tmp_path: Path, step: int) -> None:
    whole, whole_confirmer = undisturbed()
    assert len(whole_confirmer.met) >= 3, "too few contests to prove anything"
    for cut in range(0, len(whole_confirmer.met), step):
        first = KnownConfirmer(failing=FAILING, interrupt_at=cut)
        cut_run(tmp_path / f"{cut}.db", first)
        found, second = resumed(tmp_path / f"{cut}.db")
        assert found == facts(whole, "double-1")
        assert first.met + second.met == whole_confirmer.met, "a contest was held twice, or not at all"


def test_a_run_that_goes_further_keeps_its_contests() -> None:
    archive, _ = bred(settings(generations=2), STARTS, KnownConfirmer(failing=FAILING), luck=LUCK)
    before = archive.runs.confirmations("double-1")
    again = KnownConfirmer(failing=FAILING)
    run = archive.runs.get()
    chosen = settings(generations=8)
    search(archive, run, chosen, KnownEvaluator(luck=LUCK), starts=STARTS, confirmer=again).run()
    after = archive.runs.confirmations(run.id)
    assert after[: len(before)] == before
    assert {one.generation for one in after if one.purpose == "final"} == {2, 8}


def test_a_run_without_a_correct_start_has_no_contest() -> None:
    confirmer = KnownConfirmer()
    archive = Archive(":memory:")
    run = open_run(archive, CHOSEN)
    found = search(archive, run, CHOSEN, KnownEvaluator(), starts=[kernel(WRONG=1)], confirmer=confirmer).run()
    assert found is StopReason.NO_SEED
    assert confirmer.met == []
