"""Facts are written once and never change."""

import dataclasses
import json
import sqlite3
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kbevolve.archive import rows
from kbevolve.archive.conversations import Question, QuestionAnswer, QuestionStage, RequestPlace
from kbevolve.archive.parts import changed
from kbevolve.archive.records import (
    Birth,
    BirthState,
    Idea,
    Kernel,
    KnownDevice,
    Operator,
    ProblemCard,
    StopReason,
    Verdict,
)
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import ArchiveError
from kbevolve.configs.problem import Problem
from tests.archive.conftest import make_run
from tests.small_archive import confirmation


def test_births_come_in_order_of_generation_island_slot(archive: Archive, problem: Problem) -> None:
    run = make_run(problem)
    archive.add_problem(problem)
    archive.add_run(run)
    keys = [(g, i, s) for g in range(3) for i in range(3) for s in range(2)]
    for generation, island, slot in Random(0).sample(keys, len(keys)):
        archive.add_birth(
            Birth(
                run=run.id, generation=generation, island=island, slot=slot, operator=Operator.TUNE,
                state=BirthState.EXHAUSTED,
            )
        )  # fmt: skip
    assert [(birth.generation, birth.island, birth.slot) for birth in archive.runs.births(run.id)] == keys


def test_a_birth_is_written_once_and_all_or_nothing(small_archive: Any) -> None:
    with Archive(small_archive.path) as archive:
        again = dataclasses.replace(small_archive.births[5], note="another")
        kernel, idea = Kernel.from_source("z = 1\n"), Idea(title="t", mechanism="m", technique="x")
        with pytest.raises(ArchiveError, match=f"birth {again.id} is there already"):
            archive.add_birth(again, kernel=kernel, idea=idea)
        with pytest.raises(ArchiveError, match="no kernel"):
            archive.kernels.get(kernel.id)
        assert archive.runs.births(small_archive.run.id) == list(small_archive.births)


def test_what_a_fact_names_must_be_there(archive: Archive, problem: Problem) -> None:
    archive.add_problem(problem)
    with pytest.raises(ArchiveError, match="not in the archive; add that one first"):
        archive.add_run(make_run(problem, problem="0" * 16))
    run = make_run(problem)
    archive.add_run(run)
    birth = Birth(
        run=run.id, generation=0, island=0, slot=0, operator=Operator.SEED, state=BirthState.CREATED, kernel="f" * 16
    )
    with pytest.raises(ArchiveError, match="not in the archive"):
        archive.add_birth(birth)
    with pytest.raises(ArchiveError, match="not in the archive"):
        archive.add_stop("no-such-run", StopReason.GENERATIONS)
    assert archive.runs.births(run.id) == []


def test_problems_are_added_once(archive: Archive, problem: Problem) -> None:
    archive.add_problem(problem)
    archive.add_problem(dataclasses.replace(problem, summary="of a later version"))
    assert archive.problems.get(problem.id) == problem


def test_the_first_evaluation_is_the_one_that_counts(small_archive: Any) -> None:
    first = small_archive.evaluations[small_archive.best]
    with Archive(small_archive.path) as archive:
        later = changed(first, speedup=0.01, speedup_low=0.01)
        archive.add_evaluation(later)
        assert archive.kernels.evaluation(first.kernel, first.problem, first.device, "fp32") == first
        assert archive.runs.evaluations(small_archive.run.id)[first.kernel].timing.speedup == first.timing.speedup
        assert archive.problems.best(first.problem, first.device, "fp32").kernel == first.kernel
        assert archive.kernels.evaluations(first.kernel) == [first, later]


def test_a_kernel_that_failed_later_is_not_the_best(small_archive: Any) -> None:
    first, run = small_archive.evaluations[small_archive.best], small_archive.run
    with Archive(small_archive.path) as archive:
        assert archive.runs.failed(run.id) == set(), "kernels that never passed have not failed later"
        archive.add_evaluation(dataclasses.replace(first, verdict=Verdict.WRONG, device="cuda/other"))
        assert archive.runs.summary(run).best_kernel == first.kernel, "it failed elsewhere"
        archive.add_evaluation(dataclasses.replace(first, verdict=Verdict.WRONG))
        assert archive.runs.failed(run.id) == {first.kernel}
        assert archive.runs.summary(run).best_kernel != first.kernel
        assert (
            archive.problems.best(first.problem, first.device, "fp32").kernel == archive.runs.summary(run).best_kernel
        )
        assert archive.runs.evaluations(run.id)[first.kernel].verdict is Verdict.CORRECT, "what was decided on stays"


def test_a_contest_is_written_whole_or_not_at_all(small_archive: Any) -> None:
    run, kernel = small_archive.run, small_archive.best
    failure = dataclasses.replace(small_archive.evaluations[kernel], verdict=Verdict.CRASHED)
    unknown = confirmation(run.id, "f" * 16)
    with Archive(small_archive.path) as archive:
        with pytest.raises(ArchiveError, match="not in the archive"):
            archive.add_contest([confirmation(run.id, kernel), unknown], [failure])
        assert archive.runs.confirmations(run.id) == []
        assert archive.runs.failed(run.id) == set()
        archive.add_contest([confirmation(run.id, kernel)], [failure])
        with pytest.raises(ArchiveError, match="confirmation is there already"):
            archive.add_contest([confirmation(run.id, kernel, speedup=9.0)])
        assert [one.speedup for one in archive.runs.confirmations(run.id)] == [2.0]
        assert archive.runs.failed(run.id) == {kernel}
        assert archive.runs.champion(run.id) is None, "it holds no title, whatever it won"


def test_the_champion_is_what_a_run_publishes(make_archive: Any) -> None:
    sample = make_archive(confirmed=True)
    then = sample.evaluations[sample.best].timing.speedup
    with Archive(sample.path) as archive:
        champion, summary = archive.runs.champion(sample.run.id), archive.runs.summary(sample.run)
        assert champion is not None
        assert (champion.kernel, champion.purpose) == (sample.best, "final")
        assert summary.best.timing.speedup == then
        assert summary.best_speedup == champion.speedup != then
        assert archive.kernels.confirmations(sample.best)[0].blocks
        assert [one.kernel for one in archive.runs.confirmations(sample.run.id)].count(sample.best) == 1


def test_a_run_with_a_champion_is_represented_by_it(make_archive: Any) -> None:
    sample = make_archive(confirmed=True)
    slower = sample.births[0].kernel
    conditions = (sample.problem.id, sample.run.device, "fp32")
    with Archive(sample.path) as archive:
        assert archive.problems.best(*conditions).kernel == sample.best
        archive.add_evaluation(changed(sample.evaluations[sample.best], verdict=Verdict.WRONG, speedup=None))
        assert archive.runs.champion(sample.run.id).kernel == slower
        assert archive.problems.best(*conditions).kernel == slower, "though others of that run once looked better"
    other = make_archive(run_id="unconfirmed", seed=2)
    with Archive(sample.path) as archive:
        assert archive.problems.best(*conditions).kernel == other.best


def test_a_card_is_written_once_until_it_changes(archive: Archive, problem: Problem) -> None:
    archive.add_problem(problem)
    card = ProblemCard(
        problem=problem.id, device="cpu/x", precision="fp32", flags={"degenerate": "zeros pass"}, input_bytes=12,
        flops=10**15, eager_ms=0.1, roofline_ms={"fp32": 1 / 3}, floor_ms={"half": 1e-9},
    )  # fmt: skip
    assert archive.problems.card(problem.id, "cpu/x", "fp32") is None
    for _ in range(3):
        archive.add_card(card)
    assert archive.problems.card(problem.id, "cpu/x", "fp32") == card
    assert archive.problems.card(problem.id, "cpu/x", "bf16") is None
    assert count(archive, "cards") == 1
    warmer = dataclasses.replace(card, eager_ms=0.2)
    archive.add_card(warmer)
    archive.add_card(card)
    assert archive.problems.card(problem.id, "cpu/x", "fp32") == card
    assert count(archive, "cards") == 3
    with pytest.raises(ArchiveError, match="not in the archive"):
        archive.add_card(dataclasses.replace(card, problem="0" * 16))


NEW_FIELDS = {"peaks", "resources", "required_flops"}


def test_a_card_of_before_the_rates_is_read(archive: Archive, problem: Problem) -> None:
    archive.add_problem(problem)
    card = ProblemCard(problem=problem.id, device="cpu/x", precision="fp32", flops=12)
    row = rows.card_row(card)
    older = {name: value for name, value in json.loads(str(row["card"])).items() if name not in NEW_FIELDS}
    with archive._connection.transaction():
        archive._connection.insert("cards", {**row, "card": json.dumps(older), "at": "2026-11-21T00:00:00Z"})
    assert archive.problems.card(problem.id, "cpu/x", "fp32") == card


def count(archive: Archive, table: str) -> int:
    return int(archive._connection.rows(f"select count(*) from {table}")[0][0])


def test_conditions_are_never_mixed(small_archive: Any) -> None:
    first = small_archive.evaluations[small_archive.best]
    with Archive(small_archive.path) as archive:
        for change in ({"device": "cuda/other"}, {"precision": "bf16"}):
            other = changed(first, speedup=100.0, speedup_low=100.0, **change)
            archive.add_evaluation(other)
            assert archive.kernels.evaluation(other.kernel, other.problem, other.device, other.precision) == other
        assert archive.kernels.evaluation(first.kernel, "0" * 16, first.device, "fp32") is None
        assert archive.runs.summary(small_archive.run).best_speedup == first.timing.speedup
        assert archive.problems.devices(first.problem) == sorted((first.device, "cuda/other"))


def test_a_run_sees_kernels_that_an_earlier_run_measured(small_archive: Any) -> None:
    kernel = small_archive.best
    with Archive(small_archive.path) as archive:
        run = dataclasses.replace(small_archive.run, id="second")
        archive.add_run(run)
        assert archive.runs.evaluations(run.id) == {}
        archive.add_birth(
            Birth(
                run=run.id, generation=0, island=0, slot=0, operator=Operator.SEED, state=BirthState.CREATED,
                kernel=kernel,
            )
        )  # fmt: skip
        assert list(archive.runs.evaluations(run.id)) == [kernel]
        assert [birth.run for birth in archive.kernels.births(kernel)] == [small_archive.run.id, "second"]


def test_each_text_is_stored_once(small_archive: Any) -> None:
    texts = {birth.prompt for birth in small_archive.births} | {birth.reply for birth in small_archive.births}
    connection = sqlite3.connect(small_archive.path)
    stored = [text for (text,) in connection.execute("select text from texts")]
    connection.close()
    assert sorted(stored) == sorted(texts - {""})
    assert len(stored) < sum(bool(birth.prompt) + bool(birth.reply) for birth in small_archive.births)


def test_no_fact_can_be_changed_or_deleted(make_archive: Any) -> None:
    sample = make_archive(confirmed=True)
    with Archive(sample.path) as archive:
        archive.add_generation_end(sample.run.id, 0)
        archive.start_session(sample.run.id)
        archive.add_device(KnownDevice(fingerprint="d", type="cpu", description="a device"))
        place = RequestPlace(9, 0, 0, 1)
        asked = Question(run=sample.run.id, place=place, operator=Operator.MUTATE, stage=QuestionStage.IDEA)
        archive.questions(sample.run).hand_out([asked])
        archive.questions(sample.run).tell(place, QuestionAnswer(text="an idea", by="anna"))
        archive.add_transfer(sample.run.id, "{}")
        archive.replies(sample.run).keep("digest", "{}")
        archive.notes.add(sample.run.id, "a note")
    connection = sqlite3.connect(sample.path)
    tables = [name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")]
    assert {"runs", "kernels", "births", "evaluations", "blocks", "placements", "stops", "migrations"} <= set(tables)
    assert {"confirmations", "confirmation_blocks", "cards"} <= set(tables)
    for table in tables:
        column = connection.execute(f"select name from pragma_table_info('{table}')").fetchone()[0]
        for change in (f"delete from {table}", f"update {table} set {column} = {column}"):
            with pytest.raises(sqlite3.IntegrityError, match="insert-only"):
                connection.execute(change)
    connection.close()


def test_our_code_says_neither_update_nor_delete() -> None:
    folder = Path(__file__).parents[2] / "archive"
    # Migrations are tested with files of every format; a run is removed when a person asks for it.
    for file in set(folder.rglob("*.py")) - {folder / "migrations.py", folder / "removal.py"}:
        text = file.read_text()
        assert not any(word in text.lower() for word in ('"update ', '"delete ', " replace into", "drop table"))


def test_summaries_count_what_happened(small_archive: Any, make_archive: Any) -> None:
    make_archive(run_id="later", seed=5, stop=None, generations=2)
    with Archive(small_archive.path, create=False) as archive:
        later, first = archive.runs.summaries()
    assert (later.run.id, later.stopped, later.generations) == ("later", None, 2)
    evaluations = small_archive.evaluations.values()
    assert first.births == len(small_archive.births)
    assert first.evaluated == len(evaluations)
    assert first.correct == sum(one.verdict is Verdict.CORRECT for one in evaluations)
    assert first.best_kernel == small_archive.best
    assert first.generations == 8
    assert first.stopped is StopReason.GENERATIONS


def test_a_stop_is_history_once_the_run_goes_on(small_archive: Any) -> None:
    run = small_archive.run
    with Archive(small_archive.path) as archive:
        archive.add_stop(run.id, StopReason.INTERRUPTED)
        assert archive.runs.summary(run).stopped is StopReason.INTERRUPTED
        archive.add_birth(
            Birth(run=run.id, generation=9, island=0, slot=0, operator=Operator.TUNE, state=BirthState.EXHAUSTED)
        )
        assert archive.runs.summary(run).stopped is None
        archive.add_stop(run.id, StopReason.EXHAUSTED)
        assert archive.runs.summary(run).stopped is StopReason.EXHAUSTED


def test_a_name_that_a_newer_version_added_is_said_in_words(small_archive: Any) -> None:
    connection = sqlite3.connect(small_archive.path)
    connection.execute(
        "insert into stops (run, reason, births, at) select id, 'MELTED', (select count(*) from births), '' from runs"
    )
    connection.commit()
    connection.close()
    with Archive(small_archive.path) as archive, pytest.raises(ArchiveError, match=r"StopReason 'MELTED'.*newer"):
        archive.runs.summaries()


def test_what_was_found_elsewhere_comes_once_and_needs_no_birth(small_archive: Any) -> None:
    run, problem = small_archive.run, small_archive.problem
    known = small_archive.evaluations[small_archive.best]
    stranger = Kernel.from_source("class ModelNew: pass\n")
    other = Problem(name="L1/other", source="N = 5", path=Path("other.py"), cpu_sizes={}, summary="")
    with Archive(small_archive.path) as archive:
        best = archive.kernels.get(small_archive.best)
        again = changed(known, started_at=2e9, phases={"timing": 1.0}, device_instance="node7/cuda:1")
        found = dataclasses.replace(again, kernel=stranger.id, problem=other.id)
        entries = [(problem, best, known), (problem, best, again), (other, stranger, found), (other, stranger, found)]
        assert archive.add_found(entries) == [False, True, True, False]
        assert archive.add_found(entries) == [False] * 4
        assert archive.kernels.evaluations(best.id) == [known, again]
        assert archive.kernels.evaluations(stranger.id) == [found]
        assert archive.kernels.get(stranger.id) == stranger
        assert archive.kernels.births(stranger.id) == []
        assert archive.problems.get(other.id) == other
        assert archive.kernels.evaluation(best.id, problem.id, run.device, "fp32") == known


def test_what_was_found_elsewhere_comes_whole_or_not_at_all(small_archive: Any) -> None:
    stranger = Kernel.from_source("class ModelNew: pass\n")
    good = dataclasses.replace(small_archive.evaluations[small_archive.best], kernel=stranger.id)
    with Archive(small_archive.path) as archive:
        broken = dataclasses.replace(good, problem="no such problem")
        with pytest.raises(ArchiveError, match="names a run, problem, kernel or idea that is not in the archive"):
            archive.add_found([(small_archive.problem, stranger, good), (small_archive.problem, stranger, broken)])
        with pytest.raises(ArchiveError, match="no kernel"):
            archive.kernels.get(stranger.id)
