"""A model whose async copies never work: the run notices, says so in its prompts, and prefers other ideas."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from kbevolve.archive.parts import grouped
from kbevolve.archive.records import Birth, Evaluation, Kernel, Operator, Verdict
from kbevolve.archive.store import Archive
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import LLMSettings
from kbevolve.evolve.llm.client import Message, Reply
from kbevolve.evolve.proposers.codegen.proposer import LLMProposer
from kbevolve.evolve.state.idea_report import of_archive, of_run
from tests.evolve.doubles import DEVICE, KnownEvaluator, open_run, search, settings

#: Technique -> what its kernels are marked by, and the speed that a mark adds.
TECHNIQUES = {"async-copy": 0.0, "vectorize": 0.04, "fusion": 0.0}
START = 'import torch\n\nSOURCE = r"""\nextern "C" void f() {}\n"""\n\n\nclass ModelNew:\n    marks = ""\n'


class Marked(KnownEvaluator):
    """Kernels are as fast as they have marks; those with async copies are wrong, each in a way of its own."""

    def evaluate(self, problem: Problem, kernel: Kernel) -> Evaluation:
        self.asked[kernel.id] += 1
        facts: dict[str, Any] = {"kernel": kernel.id, "problem": problem.id, "device": DEVICE, "precision": "fp32"}
        marks = re.findall(r"[a-z-]+", re.search(r'marks = "([^"]*)"', kernel.source)[1])  # type: ignore[index]
        if "async-copy" in marks:
            word = "abcdefghij"[len(marks) % 10] * 3
            return grouped(Evaluation, **facts, verdict=Verdict.WRONG, message=f"element {word} differs")
        speed = 1.0 + sum(TECHNIQUES[mark] for mark in marks)
        return grouped(Evaluation,
            **facts, verdict=Verdict.CORRECT, time_ms=1 / speed, reference_ms=1.0, speedup=speed,
            speedup_low=speed * 0.999, speedup_high=speed * 1.001,
        )  # fmt: skip


class Played:
    """Implements `LanguageModel`: three ideas without claims, one of each technique; a child has its parent's marks
    and that of its idea. Keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def complete(self, system: str, messages: Sequence[Message], *, child: str = "") -> Reply:
        asked = messages[-1].content
        self.asked.append(asked)
        number = len(self.asked)
        if "JSON" in asked:
            ideas = [
                {
                    "title": f"{technique} {number}", "mechanism": "m", "technique": technique,
                    "bottleneck": "memory bandwidth",
                }
                for technique in TECHNIQUES
            ]  # fmt: skip
            return Reply(text=json.dumps(ideas), model="played")
        (technique,) = re.findall(r"The idea to carry out\n.*\(([a-z-]+);", asked)
        marks = re.findall(r'marks = "([^"]*)"', asked)[0]
        source = START.replace('marks = ""', f'marks = "{f"{marks} {technique}".strip()}"\n    number = {number}')
        return Reply(text=f"```python\n{source}```", model="played")


@pytest.fixture(scope="module")
def run() -> tuple[Archive, list[Birth], list[str]]:
    model, archive = Played(), Archive(":memory:")
    chosen = settings(generations=60, islands=1, tune_share=0, repair_turns=0, seed=3, patience=0.0)
    record = open_run(archive, chosen)
    writer = LLMProposer(model, LLMSettings(model="played"))
    proposers = dict.fromkeys((Operator.MUTATE, Operator.REWRITE, Operator.TUNE), writer)
    start = Kernel.from_source(START)
    search(archive, record, chosen, Marked(), proposers=proposers, starts=[start]).run()
    return archive, [one for one in archive.runs.births(record.id) if one.generation], model.asked


def test_a_technique_that_never_works_is_chosen_less(run: Any) -> None:
    archive, births, _ = run
    ideas = archive.runs.ideas(archive.runs.get().id)
    chosen = [ideas[birth.idea].technique for birth in births]
    first, last = Counter(chosen[:12]), Counter(chosen[-30:])
    assert first["async-copy"] >= 2, "no policy could know"
    assert last["async-copy"] <= 5
    assert last["vectorize"] > 15
    best = archive.runs.summary(archive.runs.get()).best
    assert best is not None
    assert best.timing.speedup > 1.5


def test_prompts_say_what_paid_and_what_failed(run: Any) -> None:
    _, _, requests = run
    last = next(asked for asked in reversed(requests) if "JSON" in asked)
    assert "What to expect of techniques on this problem" in last
    paid = last.index("- vectorize against memory: ")
    assert paid < last.index("- async-copy against memory: ")
    assert re.search(r"vectorize against memory pays: \d+ of 12 children faster than their parents", last)
    assert re.search(r"- (tried \d+x: )?wrong: element \w+ differs \(idea: async-copy", last)
    first = next(asked for asked in requests if "JSON" in asked)
    assert "What to expect" not in first
    assert "Lessons" not in first


def test_scores_tell_what_worked(run: Any) -> None:
    archive, births, _ = run
    found = of_run(archive, archive.runs.get())
    assert [one.technique for one in found.techniques] == ["vectorize", "fusion", "async-copy"]
    worst = found.techniques[-1]
    assert (worst.correct, worst.mean_gain, worst.against) == (0, None, "memory")
    assert worst.credit < 0.3 * found.techniques[0].credit
    assert sum(one.births for one in found.techniques) == len(births)
    assert {one.state for one in found.ideas} >= {"paid", "failed", "no gain"}
    assert found.ideas[0].technique == "vectorize"
    assert any("vectorize against memory pays" in line for line in found.lessons)
    everything = of_archive(archive)
    assert (everything.ideas, everything.lessons) == (found.ideas, ())


class Insisting(Played):
    """The same three ideas for every child."""

    def complete(self, system: str, messages: Sequence[Message], *, child: str = "") -> Reply:
        reply = super().complete(system, messages, child=child)
        if "JSON" not in messages[-1].content:
            return reply
        ideas = [{**idea, "title": f"Use {idea['technique']}"} for idea in json.loads(reply.text)]
        return Reply(text=json.dumps(ideas), model="played")


def test_islands_do_not_build_one_idea_twice_at_once() -> None:
    archive = Archive(":memory:")
    chosen = settings(generations=1, islands=3, tune_share=0, repair_turns=0, seed=3, patience=0.0)
    record = open_run(archive, chosen)
    writer = LLMProposer(Insisting(), LLMSettings(model="played"))
    proposers = dict.fromkeys((Operator.MUTATE, Operator.REWRITE), writer)
    search(archive, record, chosen, Marked(), proposers=proposers, starts=[Kernel.from_source(START)]).run()
    ideas = archive.runs.ideas(record.id)
    first = [ideas[one.idea].technique for one in archive.runs.births(record.id) if one.generation and one.idea]
    assert first == list(TECHNIQUES), "the author's order, one island after the other"
