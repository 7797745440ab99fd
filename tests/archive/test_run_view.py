"""What a search asks of one run: right answers, through an index, and from any thread."""

import threading
from dataclasses import replace
from typing import Any

import pytest

from kbevolve.archive.parts import changed
from kbevolve.archive.records import BirthState, Kernel, Operator, Verdict
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import ArchiveError


@pytest.fixture
def archive(small_archive: Any) -> Any:
    with Archive(small_archive.path) as archive:
        yield archive


def test_generations_hold_their_births_and_verdicts_in_order(archive: Archive, small_archive: Any) -> None:
    view = archive.run_view(small_archive.run)
    assert view.last_generation() == 8
    for generation in range(9):
        born = [replace(birth, prompt="", reply="") for birth in small_archive.births if birth.generation == generation]
        assert view.births(generation) == born
        expected = archive.runs.evaluations(small_archive.run.id)
        assert view.verdicts(generation) == [
            (birth, expected.get(birth.kernel) if birth.kernel else None) for birth in born
        ]
        placements = [one for one in archive.runs.placements(small_archive.run.id) if one.generation == generation]
        assert view.placements(generation) == placements
    assert view.births(9) == []


def test_another_run_says_nothing_about_this_one(archive: Archive, small_archive: Any) -> None:
    view = archive.run_view(replace(small_archive.run, id="another"))
    assert (view.last_generation(), view.last_ended(), view.births(0)) == (None, None, [])
    birth = next(birth for birth in small_archive.births if birth.kernel)
    assert not view.knows(birth.kernel, generation=99)
    assert view.first_birth(birth.kernel) is None
    assert view.evaluation(birth.kernel) is not None, "what was judged for another run is not judged again"
    elsewhere = archive.run_view(replace(small_archive.run, device="another"))
    assert elsewhere.evaluation(birth.kernel) is None
    assert {found for _, found in elsewhere.verdicts(0)} == {None}


def test_a_kernel_is_known_from_the_generation_that_bore_it(archive: Archive, small_archive: Any) -> None:
    view = archive.run_view(small_archive.run)
    first: dict[str, Any] = {}
    for birth in small_archive.births:
        if birth.kernel:
            first.setdefault(birth.kernel, birth)
    assert first
    for kernel, birth in first.items():
        assert view.knows(kernel, generation=birth.generation)
        assert not view.knows(kernel, generation=birth.generation - 1)
        assert view.first_birth(kernel) == replace(birth, prompt="", reply="")
        assert view.kernel(kernel).id == kernel
        place = (birth.generation, birth.island)
        assert not view.knows_of(kernel, tuple(Operator), before=place)
        assert view.knows_of(kernel, [birth.operator], before=(birth.generation, birth.island + 1))
        others = [
            one for one in Operator if one not in {b.operator for b in small_archive.births if b.kernel == kernel}
        ]
        assert not view.knows_of(kernel, others, before=(99, 0))
        assert not view.knows_of(kernel, [], before=(99, 0))


def test_generations_are_closed_once(archive: Archive, small_archive: Any) -> None:
    view = archive.run_view(small_archive.run)
    assert view.last_ended() is None
    for generation in range(3):
        archive.add_generation_end(small_archive.run.id, generation)
    assert view.last_ended() == 2
    with pytest.raises(ArchiveError, match="end of generation 1 is there already"):
        archive.add_generation_end(small_archive.run.id, 1)


def test_contenders_are_the_fittest_up_to_a_generation(archive: Archive, small_archive: Any) -> None:
    view = archive.run_view(small_archive.run)
    found = archive.runs.evaluations(small_archive.run.id)
    for generation in (0, 3, 8):
        born = {birth.kernel for birth in small_archive.births if birth.generation <= generation and birth.kernel}
        fit = {name: found[name].timing.speedup_low for name in born if name in found}
        correct = [name for name in fit if found[name].verdict is Verdict.CORRECT]
        ranked = sorted(correct, key=lambda name: (-fit[name], name))
        assert view.contenders(generation=generation, above=-1.0, count=99) == ranked
        above = sorted(fit[name] for name in ranked)[len(ranked) // 2]
        better = [name for name in ranked if fit[name] > above]
        assert view.contenders(generation=generation, above=above, count=2) == better[:2]


def test_failures_are_distinguished_by_the_newer_evaluation(archive: Archive, small_archive: Any) -> None:
    view, run = archive.run_view(small_archive.run), small_archive.run
    before = view.newest_evaluation()
    assert view.failed_since(0) == archive.runs.failed(run.id) == set()
    best = small_archive.evaluations[small_archive.best]
    wrong = next(one for one in small_archive.evaluations.values() if one.verdict is not Verdict.CORRECT)
    archive.add_evaluation(best)  # passed again
    archive.add_evaluation(wrong)  # never passed
    assert view.failed_since(0) == set()
    archive.add_evaluation(replace(wrong, kernel=best.kernel))
    assert view.failed_since(before) == view.failed_since(0) == archive.runs.failed(run.id) == {best.kernel}
    assert view.failed_since(view.newest_evaluation()) == set()
    assert archive.run_view(replace(run, id="another")).failed_since(0) == set()


def test_who_had_the_verdict_of_a_kernel_that_failed_falls_with_it(archive: Archive, small_archive: Any) -> None:
    view, run = archive.run_view(small_archive.run), small_archive.run
    best = small_archive.evaluations[small_archive.best]
    born = [birth for birth in small_archive.births if birth.kernel]
    early, late = (Kernel.from_source(f"# {name}\nvalue = {name!r}\n") for name in ("early", "late"))
    for slot, kernel in enumerate((early, late), start=50):
        archive.add_birth(replace(born[0], slot=slot, kernel=kernel.id, prompt="", reply=""), kernel=kernel)
    archive.add_evaluation(
        changed(best, kernel=early.id, speedup_low=best.timing.speedup_low, identical_to=best.kernel)
    )
    assert view.failed_since(0) == archive.runs.failed(run.id) == set()
    assert archive.runs.summary(run).best_kernel == best.kernel, "of equals the one that was judged"
    archive.add_evaluation(replace(best, verdict=Verdict.WRONG))
    before = view.newest_evaluation()
    assert view.failed_since(before - 1) == archive.runs.failed(run.id) == {best.kernel, early.id}
    archive.add_evaluation(changed(best, kernel=late.id, identical_to=best.kernel))  # by another judge
    assert view.failed_since(before) == {late.id}
    assert archive.runs.failed(run.id) == {best.kernel, early.id, late.id}
    assert archive.runs.summary(run).best_kernel not in (best.kernel, early.id, late.id)
    problem_best = archive.problems.best(run.problem, run.device, best.precision)
    assert problem_best is None or problem_best.kernel not in (best.kernel, early.id, late.id)


@pytest.mark.parametrize(
    ("ask", "index"),
    [
        (lambda view: view.knows("k", generation=10**6), "births_kernel_run"),
        (lambda view: view.knows_of("k", [Operator.TUNE], before=(10**6, 0)), "births_kernel_run"),
        (lambda view: view.first_birth("k"), "births_kernel_run"),
        (lambda view: view.evaluation("k"), "evaluations_kernel_problem_device_precision"),
        (lambda view: view.births(3), "births_run_generation_island_slot"),
        (lambda view: view.verdicts(3), "births_run_generation_island_slot"),
        (lambda view: view.placements(3), "placements_run_generation"),
        (lambda view: view.failed_since(3), "evaluations_problem_device_precision (problem=? AND device=? AND "),
    ],
)
def test_every_question_of_a_child_goes_through_its_index(
    archive: Archive, small_archive: Any, monkeypatch: pytest.MonkeyPatch, ask: Any, index: str
) -> None:
    connection = archive._connection
    rows, plans = connection.rows, []

    def explained(sql: str, *parameters: object) -> Any:
        plans.extend(row["detail"] for row in rows(f"explain query plan {sql}", *parameters))
        return rows(sql, *parameters)

    monkeypatch.setattr(connection, "rows", explained)
    monkeypatch.setattr(connection, "row", lambda *query: next(iter(explained(*query)), None))
    ask(archive.run_view(small_archive.run))
    assert [plan for plan in plans if index in plan], plans
    assert not [plan for plan in plans if plan.startswith("SCAN") and plan != "SCAN failed"], plans


def test_threads_may_ask_while_another_one_writes(archive: Archive, small_archive: Any) -> None:
    view, errors, over = archive.run_view(small_archive.run), [], threading.Event()
    birth = next(birth for birth in small_archive.births if birth.kernel)

    def ask() -> None:
        while not over.is_set():
            if not view.knows(birth.kernel, generation=99) or view.evaluation(birth.kernel) is None:
                errors.append("not there any more")

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for slot in range(100, 200):
        archive.add_birth(replace(birth, slot=slot, state=BirthState.DUPLICATE, prompt="", reply=""))
    over.set()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(view.births(birth.generation)) > 100
    archive.close()
    with pytest.raises(ArchiveError):  # and not a crash of the process
        view.births(0)
