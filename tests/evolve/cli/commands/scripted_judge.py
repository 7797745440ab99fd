"""A judge for `kbevolve export` that gives one answer."""

from typing import Any

import pytest

from kbevolve.archive.parts import grouped
from kbevolve.archive.records import Evaluation, Kernel, Verdict
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.device.devices import Device
from kbevolve.evolve.cli.commands import export as command
from kbevolve.evolve.runs import verification

#: An answer below what the small archive has.
SLOWER = {"speedup": 3.0, "speedup_low": 2.9, "speedup_high": 3.1}


class ScriptedJudge:
    """Gives one answer, and remembers what it was asked."""

    def __init__(self, **answer: Any) -> None:
        self.answer = answer
        self.asked: list[tuple[Problem, Kernel]] = []
        self.settings: EvaluationSettings | None = None
        self.device: Device | None = None
        self.closed = False

    def make(self, device: Device, settings: EvaluationSettings) -> "ScriptedJudge":
        self.device, self.settings = device, settings
        return self

    def __enter__(self) -> "ScriptedJudge":
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True

    def evaluate(self, problem: Problem, kernel: Kernel) -> Evaluation:
        assert self.device is not None
        self.asked.append((problem, kernel))
        answer = {
            "verdict": Verdict.CORRECT, "time_ms": 0.5, "reference_ms": 2.0, "speedup": 4.0, "speedup_low": 3.9,
            "speedup_high": 4.1, "error": 4e-6,
        }  # fmt: skip
        return grouped(Evaluation,
            kernel=kernel.id, problem=problem.id, device=self.device.fingerprint, precision="fp32",
            **answer | self.answer,
        )  # fmt: skip


def use(judge: ScriptedJudge, monkeypatch: pytest.MonkeyPatch, fingerprint: str) -> ScriptedJudge:
    device = Device(type="cpu", index=0, fingerprint=fingerprint, description="A Test Processor, 2 threads")
    monkeypatch.setattr(command, "find_device", lambda choice: device)
    monkeypatch.setattr(verification, "plain_judge", judge.make)
    return judge
