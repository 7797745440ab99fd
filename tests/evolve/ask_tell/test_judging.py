"""Where kernels are judged, and how they wait where there is no judge."""

from dataclasses import replace

import pytest

from kbevolve.archive.conversations import QuestionStage
from kbevolve.configs.errors import EvaluatorError, UsageError
from kbevolve.configs.settings import Settings
from kbevolve.evolve.ask_tell import ask as asking
from kbevolve.evolve.ask_tell.ask import ask
from kbevolve.evolve.runs import session
from kbevolve.evolve.runs.evaluators import JudgeDevices
from tests.evolve.ask_tell.home import HERE, Home, chosen
from tests.evolve.doubles import KnownJudge, kernel, problem


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
