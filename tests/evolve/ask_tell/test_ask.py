"""Ask and tell: people make the run that a model with the same answers makes, however often it is interrupted."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from kbevolve.archive.conversations import QuestionStage
from kbevolve.archive.records import Birth, BirthState, Evaluation, Kernel, Operator, StopReason
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import EvaluatorError, UsageError
from kbevolve.configs.settings import LLMSettings, Settings
from kbevolve.evaluators.device.devices import Device
from kbevolve.evolve.ask_tell import ask as asking
from kbevolve.evolve.ask_tell.answers import GivenAnswer, answer
from kbevolve.evolve.ask_tell.ask import AskResult, ask
from kbevolve.evolve.llm.client import LanguageModel, Message, Reply
from kbevolve.evolve.llm.replies import cached
from kbevolve.evolve.proposers.factory import build_proposers
from kbevolve.evolve.proposers.interactive import Interaction, OpenQuestion
from kbevolve.evolve.proposers.seeds.seeds import StartingKernel
from kbevolve.evolve.runs import session
from kbevolve.evolve.runs.evaluators import JudgeDevices
from kbevolve.evolve.runs.session import open_run, run_session
from tests.evolve.doubles import DEVICE, KnownJudge, context_of, kernel, problem, settings

HERE = Device(type="cpu", index=0, fingerprint=DEVICE, description="a double")
HERE_DEVICES = JudgeDevices(devices=(HERE,), device=HERE)
MODEL = LLMSettings(model="anna")


def script(messages: Sequence[Message]) -> str:
    """What anna answers: right and wrong kernels, some twice, and now and then nothing that could be used."""
    asked = messages[-1].content
    drawn = int(hashlib.sha256(asked.encode()).hexdigest(), 16)
    if "JSON" in asked:
        return json.dumps([{"title": f"Idea {drawn % 7}", "mechanism": "fewer loads", "technique": "fusion"}])
    if drawn % 5 == 0 and len(messages) == 1:
        return "I would rather not."
    wrong = int(drawn % 3 == 0 and len(messages) == 1)
    made = kernel(UNROLL=(1, 2, 4, 8)[drawn // 8 % 4], TILE=(8, 16, 32, 64)[drawn // 64 % 4], WRONG=wrong)
    # A kernel always has the same comment: the archive keeps the first of the texts that differ in comments alone, and
    # which one is first depends on the order of the answers.
    return f"IDEA: both together\n```python\n{made.source}# {made.id}\n```"


class Scripted:
    """A `LanguageModel` that answers with `script`, until it has answered so often."""

    def __init__(self, most: int = 10**6) -> None:
        self.most = most
        self.asked = 0

    def complete(self, system: str, messages: Sequence[Message], *, child: str = "") -> Reply:
        if self.asked >= self.most:
            raise KeyboardInterrupt
        self.asked += 1
        return Reply(text=script(messages), model="anna")


class Home:
    """An archive with one run whose children people write."""

    def __init__(self, chosen: Settings, archive: Archive | None = None) -> None:
        self.archive = archive or Archive(":memory:")
        self.settings = chosen.model_copy(update={"proposer": "ask"})
        self.run = open_run(self.archive, problem(), HERE, self.settings)
        self.devices: JudgeDevices | None = HERE_DEVICES

    def ask(self, **options: Any) -> AskResult:
        """Ask, and hand everything out that is open."""
        asked = ask(self.archive, self.run, self.settings, devices=self.devices, **options)
        self.archive.questions(self.run).hand_out([one.question for one in asked.open])
        return asked

    def tell(self, one: OpenQuestion, **given: Any) -> None:
        given = given or {"reply": script(one.messages)}
        receipt = answer(self.archive, [GivenAnswer(question=one.question.id, by="anna", **given)])
        assert receipt.taken == (one.question.id,), receipt

    def go(self, choose: Callable[[Sequence[OpenQuestion]], Sequence[OpenQuestion]] = lambda open_: open_) -> int:
        """Ask and tell until the run is over; how often that was."""
        for turn in range(300):
            asked = self.ask()
            if asked.over:
                assert asked.reason is StopReason.GENERATIONS
                return turn
            for one in choose(asked.open):
                self.tell(one)
        raise AssertionError("the run does not end")

    def resume(self, model: LanguageModel | None, **changes: Any) -> StopReason:
        """Go on with a model, or offline."""
        chosen = self.settings.model_copy(update=changes)
        interaction = Interaction(questions=self.archive.questions(self.run))
        kept = cached(lambda one, rate_limit: model, self.archive.replies(self.run))
        proposers = build_proposers(chosen, kept, interaction)
        ending = run_session(context_of(self.archive, self.run, HERE, chosen), HERE_DEVICES, proposers=proposers)
        return ending.reason

    def judged(self, found: Evaluation, kernel: Kernel) -> None:
        """Bring home what was found elsewhere."""
        assert self.archive.add_found([(problem(), kernel, found)]) == [True]

    def births(self) -> list[Birth]:
        return [replace(birth, run="", seconds=0.0) for birth in self.archive.runs.births(self.run.id)]


@pytest.fixture(autouse=True)
def judge(monkeypatch: pytest.MonkeyPatch) -> KnownJudge:
    judge = KnownJudge()
    judge.replace_judge(monkeypatch)
    starts = (StartingKernel(kernel=kernel(), note="naive"),)
    monkeypatch.setattr(session, "new_starts", lambda *_: starts)
    return judge


def chosen(*, confirm_rounds: int = 3, **search: Any) -> Settings:
    evaluation = {"baselines": False, "confirm_rounds": confirm_rounds}
    some = settings(evaluation=evaluation, **{"generations": 6, "islands": 2, "tune_share": 0.2, **search})
    return some.model_copy(update={"llm": MODEL})


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
    home.tell(asked.open[3])
    again = home.ask()
    assert [one.question.id for one in again.open if one not in asked.open] == [
        asked.open[3].question.id.replace("q1", "q2")
    ]


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


def test_without_a_judge_kernels_wait_until_their_verdicts_come(judge: KnownJudge) -> None:
    home = Home(chosen(islands=2, tune_share=0, generations=2, confirm_rounds=0))
    asked = home.ask()  # the starting kernels are judged here
    for one in asked.open:
        home.tell(one, idea="Unroll: fewer branches", code=kernel(UNROLL=2 + 2 * one.question.place.island).source)
    seen = judge.asked.total()
    waiting = home.ask(judge=False)
    assert judge.asked.total() == seen
    assert not waiting.over
    assert waiting.open == ()
    assert [waits.id for _, waits in waiting.waiting] == [kernel(UNROLL=2).id, kernel(UNROLL=4).id]
    for _, waits in waiting.waiting:
        home.judged(judge.evaluate(problem(), waits), waits)
    asked = home.ask(judge=False)
    assert asked.waiting == ()
    assert {one.question.place.generation for one in asked.open} == {2}


def test_a_contest_is_held_by_a_judge_or_waits_for_one(judge: KnownJudge) -> None:
    home = Home(chosen(islands=1, tune_share=0, generations=2))
    (one,) = home.ask().open
    home.tell(one, idea="Unroll: fewer branches", code=kernel(UNROLL=8, TILE=32).source)
    fast = kernel(UNROLL=8, TILE=32)
    home.judged(judge.evaluate(problem(), fast), fast)
    waiting = home.ask(judge=False)
    assert (waiting.over, waiting.open, waiting.waiting) == (False, (), ())
    met = len(judge.met)
    assert home.ask().open
    assert len(judge.met) == met + 1


def test_judges_are_opened_only_when_there_is_something_to_judge(
    judge: KnownJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(chosen(islands=1, tune_share=0))
    (one,) = home.ask().open
    home.tell(one)
    monkeypatch.setattr(session, "open_judges", lambda *_, **__: pytest.fail("a judge was opened for nothing"))
    (following,) = home.ask().open
    assert following.question.stage is QuestionStage.CODE


def test_a_run_of_another_device_is_not_judged_here() -> None:
    home = Home(chosen(islands=1, tune_share=0))
    home.tell(home.ask().open[0], idea="Unroll: fewer branches", code=kernel(UNROLL=2).source)
    elsewhere = replace(HERE, fingerprint="another")
    with pytest.raises(UsageError, match=r"is judged on double; this is another: give --no-judge here"):
        ask(home.archive, home.run, home.settings, devices=JudgeDevices(devices=(elsewhere,), device=elsewhere))


def test_questions_are_asked_and_answered_without_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(chosen(islands=2, tune_share=0, confirm_rounds=0))
    first, _ = home.ask().open
    home.tell(first)

    def none_here(settings: Settings) -> JudgeDevices:
        raise EvaluatorError("torch sees 0 CUDA devices")

    monkeypatch.setattr(asking, "find_judge_devices", none_here)
    home.devices = None
    assert len(home.ask().open) == 2, "as long as there is nothing to judge"
    for one in home.ask().open:
        home.tell(
            one, **({"code": kernel(UNROLL=2).source} if one.question.stage is QuestionStage.CODE else {"passed": True})
        )
    with pytest.raises(UsageError, match=r"judged on double: torch sees 0 CUDA devices\. Or give --no-judge here"):
        home.ask()
    asked = home.ask(judge=False)
    assert [waits.id for _, waits in asked.waiting] == [kernel(UNROLL=2).id]


def test_strategy_openevolve_cannot_be_asked() -> None:
    home = Home(chosen(strategy="openevolve", islands=1))
    with pytest.raises(UsageError, match="strategy openevolve asks its models by itself"):
        home.ask()


def test_a_broken_answer_never_breaks_the_run() -> None:
    home = Home(chosen(islands=1, tune_share=0, generations=4))
    replies = iter(
        ["\ud800 \0", "```python\n" * 40, "[" * 5000, "{}", "<<<<<<< SEARCH", "class ModelNew(", "", "é" * 10]
    )
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
