"""A run whose children people write, and a model that writes the same."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from kbevolve.archive.records import Birth, Evaluation, Kernel, StopReason
from kbevolve.archive.store import Archive
from kbevolve.configs.settings import LLMSettings, Settings
from kbevolve.evaluators.device.devices import Device
from kbevolve.evolve.ask_tell.answers import GivenAnswer, answer
from kbevolve.evolve.ask_tell.ask import AskResult, ask
from kbevolve.evolve.llm.client import LanguageModel, Message, Reply
from kbevolve.evolve.llm.replies import cached
from kbevolve.evolve.proposers.factory import build_proposers
from kbevolve.evolve.proposers.interactive import Interaction, OpenQuestion
from kbevolve.evolve.runs.evaluators import JudgeDevices
from kbevolve.evolve.runs.session import open_run, run_session
from tests.evolve.doubles import DEVICE, context_of, kernel, problem, settings

HERE = Device(type="cpu", index=0, fingerprint=DEVICE, description="a double")


HERE_DEVICES = JudgeDevices(devices=(HERE,), device=HERE)


MODEL = LLMSettings(model="anna")


def script(messages: Sequence[Message]) -> str:
    """What anna answers: right and wrong kernels, some twice, and now and then nothing that could be used.

    Until a prompt shows a failure, each kernel is wrong; all else depends on the words of the prompt.
    """
    asked = messages[-1].content
    drawn = int(hashlib.sha256(asked.encode()).hexdigest(), 16)
    if "JSON" in asked:
        return json.dumps([{"title": f"Idea {drawn % 7}", "mechanism": "fewer loads", "technique": "fusion"}])
    if drawn % 5 == 0 and len(messages) == 1:
        return "I would rather not."
    wrong = int(("wrong by 3" not in asked or drawn % 3 == 0) and len(messages) == 1)
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


def chosen(*, confirm_rounds: int = 3, **search: Any) -> Settings:
    evaluation = {"baselines": False, "confirm_rounds": confirm_rounds}
    some = settings(evaluation=evaluation, **{"generations": 6, "islands": 2, "tune_share": 0.2, **search})
    return some.model_copy(update={"llm": MODEL})
