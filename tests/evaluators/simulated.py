"""A judge for fleets to be tested with: speeds are known, and a kernel's source may ask for a fault.

A kernel declares ``FAULT = "kill"`` (the judge dies of it each time), ``"raise"`` (the judge breaks), ``"error"`` (it
cannot work), or ``KILL_ONCE = "PATH"`` (it dies of it once, and leaves the file PATH), and ``SECONDS = 0.5``.
"""

import os
import re
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from kbevolve.archive.records import Evaluation, Kernel, ProblemCard
from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.timing.contest import Contest
from kbevolve.evolve.proposers.tuning.tunables import values_of
from tests.evolve.doubles import KERNEL_TEXT, KnownJudge

NAME = "tests.evaluators.simulated:SimulatedJudge"


class SimulatedJudge(KnownJudge):
    """`KnownJudge` as a class that judge hosts can make; notes in `tags` which process judged."""

    def __init__(self, device: Device, settings: EvaluationSettings, *, width: int = 1, builders: int = 0) -> None:
        super().__init__(tags=(f"pid {os.getpid()}",))
        self(device, settings, width=width)

    def evaluate(self, problem: Problem, kernel: Kernel) -> Evaluation:
        asked = dict(re.findall(r'^(FAULT|KILL_ONCE|SECONDS) = "?([^"\s]*)"?', kernel.source, re.MULTILINE))
        time.sleep(float(asked.get("SECONDS", 0)))
        if "KILL_ONCE" in asked and not Path(asked["KILL_ONCE"]).exists():
            Path(asked["KILL_ONCE"]).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        match asked.get("FAULT"):
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "raise":
                raise RuntimeError("CUDA error: the launch timed out and was terminated\nand more lines")
            case "error":
                raise EvaluatorError("no worker starts here; reboot")
        return super().evaluate(problem, kernel)

    def compete(self, problem: Problem, kernels: Sequence[Kernel], *, rounds: int) -> Contest:
        self.failing = {kernel.id for kernel in kernels if values_of(kernel.source).get("WRONG") == "1"}
        return super().compete(problem, kernels, rounds=rounds)

    def card(self, problem: Problem) -> ProblemCard:
        if "DEADLY" in problem.source:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().card(problem)

    def close(self) -> None:
        self.closed = True


def faulty(**lines: object) -> Kernel:
    """A kernel whose source asks for something: ``faulty(FAULT="kill")``."""
    head = "".join(f"{name} = {value!r}\n".replace("'", '"') for name, value in lines.items())
    return Kernel.from_source(head + KERNEL_TEXT)


def pid_of(found: Evaluation) -> int:
    """Process of the judge that found it."""
    return int(found.tags[0].removeprefix("pid "))
