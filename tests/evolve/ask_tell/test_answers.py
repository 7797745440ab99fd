"""Answers in any form become what a model would have written; wrong ones are refused with a remedy."""

import json
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.conversations import Question, QuestionStage, RequestPlace
from kbevolve.archive.records import Operator
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import UsageError
from kbevolve.configs.playbook import load_playbook
from kbevolve.evolve.ask_tell.answers import GivenAnswer, answer, composed, read_answers
from kbevolve.evolve.proposers.codegen.edits import read_answer
from kbevolve.evolve.proposers.codegen.ideas import parse_ideas

CODE = "class ModelNew:\n    pass\n"
IDEA = Question(run="r", place=RequestPlace(1, 0, 0, 1), operator=Operator.MUTATE, stage=QuestionStage.IDEA)
WRITE = Question(run="r", place=RequestPlace(1, 0, 0, 2), operator=Operator.MUTATE, stage=QuestionStage.CODE)
CROSS = Question(run="r", place=RequestPlace(1, 0, 0, 1), operator=Operator.CROSS, stage=QuestionStage.CODE)


def ideas(text: str) -> list[tuple[str, str]]:
    return [(idea.title, idea.mechanism) for idea in parse_ideas(text, load_playbook(), proposed_by="anna")]


@pytest.mark.parametrize(
    ("idea", "wanted"),
    [
        ("Larger tiles: fewer loads: fewer stalls", [("Larger tiles", "fewer loads: fewer stalls")]),
        ("Larger tiles", [("Larger tiles", "Larger tiles")]),
        ("Larger tiles\nEach load serves\nmore products.", [("Larger tiles", "Each load serves more products.")]),
        ('{"title": "A", "mechanism": "b"}', [("A", "b")]),
        ('[{"title": "A", "mechanism": "b"}, {"title": "C", "mechanism": "d"}]', [("A", "b"), ("C", "d")]),
        ('Split "K" by {2}: both halves at once', [('Split "K" by {2}', "both halves at once")]),
    ],
)
def test_an_idea_may_be_a_line_or_json(idea: str, wanted: list[tuple[str, str]]) -> None:
    text, following = composed(GivenAnswer(question="", idea=idea), IDEA)
    assert ideas(text) == wanted
    assert following is None


@pytest.mark.parametrize("code", [CODE, f'"""```python\nno\n```"""\n{CODE}', f"# `````\n{CODE}", CODE.rstrip()])
def test_code_comes_out_of_its_fence_as_it_went_in(code: str) -> None:
    for text in (
        composed(GivenAnswer(question="", code=code), WRITE)[0],
        composed(GivenAnswer(question="", code=code, idea="both"), CROSS)[0],
        composed(GivenAnswer(question="", code=code, idea="A: b"), IDEA)[1] or "",
    ):
        assert read_answer(text, None).source.strip() == code.strip()


def test_a_crossing_states_its_idea_with_its_code() -> None:
    text, _ = composed(GivenAnswer(question="", code=CODE, idea="tiles of one,\nloads of the other"), CROSS)
    assert text.startswith("IDEA: tiles of one, loads of the other\n")


def test_a_reply_is_taken_as_it_is_and_a_pass_is_empty() -> None:
    assert composed(GivenAnswer(question="", reply="prose\r\n"), WRITE) == ("prose\r\n", None)
    assert composed(GivenAnswer(question="", passed=True), IDEA) == ("", "")
    assert composed(GivenAnswer(question="", passed=True), WRITE) == ("", None)


@pytest.mark.parametrize(
    ("given", "question", "complaint"),
    [
        ({"code": CODE}, IDEA, "asks for an idea"),
        ({"code": CODE, "idea": " \n"}, IDEA, "asks for an idea"),
        ({"idea": "A: b"}, WRITE, "asks for code"),
        ({"idea": "A: b", "code": CODE}, WRITE, "the idea of its child is decided"),
        ({}, WRITE, "give one of these"),
        ({"reply": "r", "code": CODE}, WRITE, "give one of these"),
        ({"reply": "r", "passed": True}, WRITE, "give one of these"),
        ({"reply": " \n"}, WRITE, "the reply is empty; --pass leaves"),
    ],
)
def test_what_does_not_answer_the_question_is_refused(given: Any, question: Question, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        composed(GivenAnswer(question="", **given), question)


def test_each_answer_stands_alone(small_archive: Any) -> None:
    with Archive(small_archive.path) as archive:
        run = archive.runs.get()
        first, second = (
            Question(
                run=run.id, place=RequestPlace(9, island, 0, 1), operator=Operator.MUTATE, stage=QuestionStage.IDEA
            )
            for island in (0, 1)
        )
        archive.questions(run).hand_out([first, second])
        given = [
            GivenAnswer(question="nonsense", idea="A: b"),
            GivenAnswer(question=first.id, idea="A: b", by=" anna "),
            GivenAnswer(question="g9/i1/s0/q1", idea="C: d"),
            GivenAnswer(question="g9/i2/s0/q1", idea="C: d"),
            GivenAnswer(question="no-such-run/g9/i1/s0/q1", idea="C: d"),
            GivenAnswer(question=second.id, code=CODE),
        ]
        receipt = answer(archive, given)
        assert receipt.taken == (first.id, second.id)
        assert receipt.runs == (run.id,)
        assert [one.question for one in receipt.refused] == [given[index].question for index in (0, 3, 4, 5)]
        whys = [one.why for one in receipt.refused]
        assert "is not the id of a question; `kbevolve ask` prints them" in whys[0]
        assert "was never asked" in whys[1]
        assert "no run 'no-such-run'" in whys[2]
        assert "asks for an idea" in whys[3]
        kept = archive.questions(run).answer(first.place)
        assert kept is not None
        assert kept.by == "anna"
        assert answer(archive, given[1:2]).known == (first.id,)


def test_answers_come_from_an_array_or_from_lines(tmp_path: Path) -> None:
    entries: list[dict[str, Any]] = [
        {"question": "g1/i0/s0/q1", "idea": {"title": "A", "mechanism": "b"}, "code": CODE, "by": "anna"},
        {"question": "g1/i1/s0/q1", "reply": "r"},
        {"question": "g1/i2/s0/q1", "passed": True},
    ]
    given = [
        GivenAnswer(question="g1/i0/s0/q1", idea='{"title": "A", "mechanism": "b"}', code=CODE, by="anna"),
        GivenAnswer(question="g1/i1/s0/q1", reply="r"),
        GivenAnswer(question="g1/i2/s0/q1", passed=True),
    ]
    file = tmp_path / "answers.json"
    file.write_text(json.dumps(entries, indent=1))
    assert read_answers(file) == given
    file.write_text("\n".join(json.dumps(entry) for entry in entries) + "\n\n")
    assert read_answers(file) == given
    file.write_text(json.dumps(entries[1]))
    assert read_answers(file) == given[1:2]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"question": "g1/i0/s0/q1", "anser": "r"}', "entry 1: GivenAnswer has no field 'anser'"),
        (
            '["g1/i0/s0/q1"]',
            "entry 1: GivenAnswer is 'g1/i0/s0/q1'; an object is wanted",
        ),
        ('{"question": "g1/i0/s0/q1"}\n{oops', "line 2: not JSON"),
        ('{"question": "g1/i0/s0/q1", "code": 3}', "code is 3; a string is wanted"),
        ('{"question": "g1/i0/s0/q1", "passed": "yes"}', "passed is 'yes'; true or false is wanted"),
        ('{"question": null, "reply": "r"}', "question is missing"),
        ('{"question": "g1/i0/s0/q1", "by": 3}', "by is 3; a string is wanted"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "answers.json"
    file.write_text(text)
    with pytest.raises(UsageError) as refused:
        read_answers(file)
    assert complaint in str(refused.value)
    assert str(file) in str(refused.value)
