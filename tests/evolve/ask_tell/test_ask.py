"""Ask and tell: people make the run that a model with the same answers makes, however often it is interrupted."""

from collections.abc import Sequence
from typing import Any

import pytest

from kbevolve.archive.conversations import QuestionStage
from kbevolve.archive.records import BirthState, Kernel, Operator, StopReason
from kbevolve.configs.errors import UsageError
from kbevolve.configs.settings import LLMSettings
from kbevolve.evolve.ask_tell.answers import GivenAnswer, answer
from kbevolve.evolve.llm.client import Message, Reply
from tests.evolve.ask_tell.home import Home, Scripted, chosen
from tests.evolve.doubles import KnownJudge, kernel


@pytest.mark.parametrize(
    "search",
    [
        {"lookahead": 2},
        *(pytest.param(one, marks=pytest.mark.slow) for one in ({}, {"islands": 1, "repair_turns": 2}, {"islands": 3})),
    ],
)
def test_answers_make_the_run_that_a_model_makes(search: dict[str, Any]) -> None:
    by_model, by_hand = Home(chosen(**search)), Home(chosen(**search))
    assert by_model.resume(Scripted()) is StopReason.GENERATIONS
    by_hand.go()
    assert by_hand.births() == by_model.births()
    states = {birth.state for birth in by_hand.births()}
    assert BirthState.CREATED in states
    assert Operator.REPAIR in {birth.operator for birth in by_hand.births()}
    assert {birth.model for birth in by_hand.births() if birth.prompt} == {"anna"}


@pytest.mark.parametrize(
    "strategy", ["refine", *(pytest.param(one, marks=pytest.mark.slow) for one in ("best-of-n", "greedy", "tree"))]
)
def test_every_strategy_can_be_asked(strategy: str) -> None:
    plan = chosen(strategy=strategy, islands=1, generations=4)
    by_model, by_hand = Home(plan), Home(plan)
    by_model.resume(Scripted())
    by_hand.go()
    assert by_hand.births() == by_model.births()
    assert {birth.model for birth in by_hand.births() if birth.prompt} == {"anna"}


@pytest.mark.slow
def test_neither_the_order_nor_the_time_of_answers_changes_the_run(judge: KnownJudge) -> None:
    at_once, one_by_one = Home(chosen(lookahead=1)), Home(chosen(lookahead=1))
    few = at_once.go()
    many = one_by_one.go(lambda open_: open_[-1:])
    assert many > few
    assert at_once.births() == one_by_one.births()
    assert max(judge.asked.values()) == 2, "once in each archive"


def test_all_children_that_are_open_are_asked_for_at_once() -> None:
    home = Home(chosen(islands=3, lookahead=1, tune_share=0))
    asked = home.ask()
    assert [one.question.place.child for one in asked.open] == [f"g{g}/i{i}/s0" for g in (1, 2) for i in (0, 1, 2)]
    assert home.ask().open == asked.open, "asking again asks the same"


def test_code_is_asked_for_when_all_earlier_children_have_their_ideas() -> None:
    home = Home(chosen(islands=3, lookahead=1, tune_share=0))
    asked = home.ask()

    def new() -> list[str]:
        return [one.question.place.child for one in home.ask().open if one not in asked.open]

    home.tell(asked.open[1])
    assert new() == [], "g1/i0 may choose the same idea, and comes first"
    home.tell(asked.open[0])
    assert new() == ["g1/i0/s0", "g1/i1/s0"]


def test_by_default_the_next_generation_waits_for_the_answers() -> None:
    home = Home(chosen(islands=3, lookahead="auto", tune_share=0))
    assert [one.question.place.child for one in home.ask().open] == [f"g1/i{island}/s0" for island in (0, 1, 2)]


def test_a_question_is_what_a_model_is_sent() -> None:
    home, sent = Home(chosen(islands=1, tune_share=0)), []

    class Listening(Scripted):
        def complete(self, system: str, messages: Sequence[Message], *, child: str = "") -> Reply:
            sent.append((system, tuple(messages)))
            return super().complete(system, messages, child=child)

    Home(chosen(islands=1, tune_share=0)).resume(Listening())
    received = []
    while not (asked := home.ask()).over:
        for one in asked.open:
            received.append((one.system, one.messages))
            home.tell(one)
    assert received == sent
    assert {one[1][-1].content[:7] for one in received if len(one[1]) == 1} != set()


def test_idea_and_code_may_be_given_at_once() -> None:
    home = Home(chosen(islands=1, tune_share=0, generations=1))
    (one,) = home.ask().open
    assert one.question.stage is QuestionStage.IDEA
    assert one.parents == (kernel().id,)
    home.tell(one, idea="Unroll: fewer branches", code=kernel(UNROLL=4).source)
    asked = home.ask()
    assert asked.over
    (birth,) = (birth for birth in home.births() if birth.generation)
    assert (birth.kernel, birth.state, birth.model) == (kernel(UNROLL=4).id, BirthState.CREATED, "anna")
    (idea,) = home.archive.runs.ideas(home.run.id).values()
    assert (idea.title, idea.mechanism, idea.proposed_by) == ("Unroll", "fewer branches", "anna")
    (evaluation,) = (evaluation for birth, evaluation in asked.news if birth.generation)
    assert evaluation is not None
    assert evaluation.timing.speedup == pytest.approx(1 + 0.3 * 3 - 0.02 * 24)


def test_code_is_not_taken_for_another_idea_than_its_own() -> None:
    home = Home(chosen(islands=1, tune_share=0, generations=2))
    (first,) = home.ask().open
    home.tell(first, idea="Unroll: fewer branches", code=kernel(UNROLL=4).source)
    (second,) = home.ask().open
    home.tell(second, idea="unroll!: again", code=kernel(UNROLL=8).source)
    (asked,) = home.ask().open
    assert asked.question.id == second.question.id.replace("q1", "q2")
    assert asked.question.stage is QuestionStage.CODE
    assert "tried before" in asked.note
    assert all(birth.kernel != kernel(UNROLL=8).id for birth in home.births())


def test_a_pass_ends_the_child_and_the_run_continues() -> None:
    home = Home(chosen(islands=1, tune_share=0, generations=2))
    for generation in (1, 2):
        (one,) = home.ask().open
        assert one.question.place.generation == generation
        home.tell(one, passed=True)
    assert home.ask().over
    assert [birth.state for birth in home.births() if birth.generation] == [BirthState.NO_CODE] * 2


def test_a_file_that_cannot_be_used_is_asked_for_once_more() -> None:
    home = Home(chosen(islands=1, tune_share=0, generations=1))
    (one,) = home.ask().open
    home.tell(one, idea="Unroll: fewer branches", code="class Model: ...")
    (again,) = home.ask().open
    assert (again.question.place.number, again.question.stage) == (3, QuestionStage.CODE)
    assert "class ModelNew" in again.messages[-1].content
    home.tell(again, code=kernel(UNROLL=2).source)
    assert home.ask().over


def test_a_kernel_that_fails_is_asked_for_as_a_repair() -> None:
    home = Home(chosen(islands=1, tune_share=0, generations=1))
    (one,) = home.ask().open
    home.tell(one, idea="Unroll: fewer branches", code=kernel(UNROLL=2, WRONG=1).source)
    (repair,) = home.ask().open
    assert repair.question.operator is Operator.REPAIR
    assert repair.question.place.slot == 1
    assert repair.parents[0] == kernel(UNROLL=2, WRONG=1).id
    assert "wrong by 3" in repair.messages[-1].content
    home.tell(repair, code=kernel(UNROLL=2).source)
    assert home.ask().over
    assert home.births()[-1].parents == (kernel(UNROLL=2, WRONG=1).id, kernel().id)


def test_a_model_people_and_tunables_continue_one_run_in_turn() -> None:
    """No answer is lost, nothing is paid for twice, and questions that lapsed are refused."""
    plan = chosen(islands=2, tune_share=0, generations=6, confirm_rounds=0)
    home, pure, model = Home(plan), Home(plan), Scripted()
    assert home.resume(model, search=home.settings.search.model_copy(update={"generations": 2}))
    before, paid = home.births(), model.asked
    first, second = home.ask().open
    assert {one.question.place.generation for one in (first, second)} == {3}
    home.tell(first)  # one stage of two: the rest of this child is the model's
    assert home.resume(model, search=home.settings.search.model_copy(update={"generations": 4}))
    late = answer(home.archive, [GivenAnswer(question=second.question.id, reply="too late")])
    assert [one.why for one in late.refused] == ["the child was created without it meanwhile"]
    assert home.births()[: len(before)] == before
    written = home.births()
    pure.resume(everything := Scripted(), search=pure.settings.search.model_copy(update={"generations": 4}))
    assert written == pure.births()
    assert model.asked == everything.asked - 1 > paid
    home.resume(None, proposer="tunables", llm=LLMSettings())
    assert home.ask().over
    assert {birth.operator for birth in home.births()[len(written) :]} <= {Operator.TUNE, Operator.CROSS}
    assert home.births()[-1].generation == 6


@pytest.mark.slow
def test_what_a_model_has_answered_is_not_asked_again() -> None:
    home = Home(chosen(islands=1, tune_share=0))
    assert home.resume(Scripted(most=1)) is StopReason.INTERRUPTED
    (one,) = home.ask().open
    assert (one.question.place.number, one.question.stage) == (2, QuestionStage.CODE)
    home.tell(one)
    pure = Home(chosen(islands=1, tune_share=0))
    pure.resume(Scripted())
    home.go()
    assert home.births() == pure.births()


def test_strategy_openevolve_cannot_be_asked() -> None:
    home = Home(chosen(strategy="openevolve", islands=1))
    with pytest.raises(UsageError, match="strategy openevolve asks its models by itself"):
        home.ask()


def test_a_broken_answer_never_breaks_the_run() -> None:
    home = Home(chosen(islands=1, tune_share=0, generations=4))
    replies = iter(["\ud800 \0", "```python\n" * 40, "[" * 5000, "{}", "<<<<<<< SEARCH", "class ModelNew(", "é" * 10])
    while not (asked := home.ask()).over:
        for one in asked.open:
            home.tell(one, reply=next(replies, "nothing"))
    assert all(birth.state is BirthState.NO_CODE for birth in home.births() if birth.generation)


def test_the_given_code_is_the_kernel_that_is_judged() -> None:
    """Whatever fences, docstrings and line ends are in it."""
    home = Home(chosen(islands=1, tune_share=0, generations=1))
    source = '"""Usage:\r\n```python\nModelNew()\n```\n````\n"""\n' + kernel(UNROLL=4).source + "\n\n"
    home.tell(home.ask().open[0], idea='A "quoted" {idea}: with ```fences```', code=source)
    assert home.ask().over
    assert home.births()[-1].kernel == Kernel.from_source(source.replace("\r\n", "\n")).id
