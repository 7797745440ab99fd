"""Questions and answers: handed out once, answered once, and nothing is taken that was not asked or comes late."""

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.conversations import (
    AnswerStatus,
    Question,
    QuestionAnswer,
    Questions,
    QuestionStage,
    RequestPlace,
    parse_id,
)
from kbevolve.archive.records import Birth, BirthState, KnownDevice, Operator
from kbevolve.archive.store import Archive

PLACE = RequestPlace(9, 0, 0, 1)


@pytest.fixture
def archive(small_archive: Any) -> Iterator[Archive]:
    with Archive(small_archive.path) as opened:
        yield opened


@pytest.fixture
def questions(archive: Archive) -> Questions:
    return archive.questions(archive.runs.get())


def question(questions: Questions, place: RequestPlace = PLACE) -> Question:
    return Question(run=questions.run, place=place, operator=Operator.MUTATE, stage=QuestionStage.IDEA)


def tell(
    questions: Questions, text: str = "an idea", place: RequestPlace = PLACE, following: str | None = None
) -> AnswerStatus:
    return questions.tell(place, QuestionAnswer(text=text, following=following, by="anna"))


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("g3/i1/s0/q2", (None, RequestPlace(3, 1, 0, 2))),
        ("matmul-20261121-083012-3f2a/g12/i0/s1/q1", ("matmul-20261121-083012-3f2a", RequestPlace(12, 0, 1, 1))),
        (" g3/i1/s0/q2\n", (None, RequestPlace(3, 1, 0, 2))),
        ("g3/i1/s0", None),
        ("a/b/g3/i1/s0/q2", None),
        ("g3/i1/s0/q2/", None),
        ("results.jsonl", None),
        ("", None),
    ],
)
def test_an_id_names_a_run_and_a_place(text: str, parsed: tuple[str | None, RequestPlace] | None) -> None:
    assert parse_id(text) == parsed


def test_an_id_is_read_back(questions: Questions) -> None:
    assert parse_id(question(questions).id) == (questions.run, PLACE)
    assert question(questions).id == f"{questions.run}/g9/i0/s0/q1"


def test_a_question_is_handed_out_once_and_known_from_then_on(questions: Questions) -> None:
    assert questions.asked(PLACE) is None
    (first,) = questions.hand_out([question(questions)])
    assert first == question(questions)
    again, other = questions.hand_out([question(questions), question(questions, PLACE._replace(island=1))])
    assert again.asked > "2026"
    assert other.asked == ""
    assert questions.asked(PLACE) == again
    assert replace(again, asked="") == question(questions)


def test_the_first_answer_counts(questions: Questions) -> None:
    questions.hand_out([question(questions)])
    assert questions.answer(PLACE) is None
    assert tell(questions) is AnswerStatus.TAKEN
    assert tell(questions) is AnswerStatus.KNOWN
    assert tell(questions, "another") is AnswerStatus.TWICE
    assert tell(questions, following="code") is AnswerStatus.TWICE
    assert questions.answer(PLACE) == QuestionAnswer(text="an idea", by="anna")


def test_an_answer_without_its_question_is_refused(archive: Archive, questions: Questions) -> None:
    questions.hand_out([question(questions)])
    assert tell(questions, place=PLACE._replace(number=2)) is AnswerStatus.UNASKED
    elsewhere = archive.runs.get(questions.run)
    archive.add_run(replace(elsewhere, id="another-run"))
    assert tell(archive.questions(archive.runs.get("another-run"))) is AnswerStatus.UNASKED


def test_a_child_that_was_born_takes_no_answer(archive: Archive, questions: Questions) -> None:
    questions.hand_out([question(questions), question(questions, PLACE._replace(island=1))])
    tell(questions, place=PLACE._replace(island=1))
    assert questions.unused() == 1
    for island in (0, 1):
        archive.add_birth(
            Birth(
                run=questions.run, generation=9, island=island, slot=0, operator=Operator.TUNE,
                state=BirthState.EXHAUSTED,
            )
        )  # fmt: skip
    assert tell(questions) is AnswerStatus.LATE
    assert questions.unused() == 0
    assert tell(questions, place=PLACE._replace(island=1)) is AnswerStatus.KNOWN


def test_an_answer_is_kept_as_it_was_given(questions: Questions) -> None:
    questions.hand_out([question(questions)])
    text = "x × y\r\n\u2028 half a pair \ud800 and a zero\0"
    assert tell(questions, text, following="") is AnswerStatus.TAKEN
    found = questions.answer(PLACE)
    assert found is not None
    assert found.text.startswith("x × y\r\n\u2028 half a pair ")
    assert found.following == ""


@pytest.mark.parametrize("table", ["questions", "answers", "devices"])
def test_no_answer_is_ever_changed(archive: Archive, questions: Questions, table: str) -> None:
    questions.hand_out([question(questions)])
    tell(questions)
    archive.add_device(KnownDevice(fingerprint="d", type="cpu", description="a device"))
    with sqlite3.connect(archive.path) as connection:
        for change in (f"delete from {table}", f"update {table} set at = 'never'"):
            with pytest.raises(sqlite3.IntegrityError, match="insert-only"):
                connection.execute(change)


def test_a_device_stays_as_it_was_first_reported(tmp_path: Path) -> None:
    device = KnownDevice(fingerprint="cuda/H200", type="cuda", description="NVIDIA H200, 132 SMs")
    with Archive(tmp_path / "kbevolve.db") as archive:
        assert archive.device("cuda/H200") is None
        archive.add_device(device)
        archive.add_device(replace(device, description="in other words"))
        assert archive.device("cuda/H200") == device
