"""A judge without a device: what it finds about a kernel follows from the kernel alone."""

import time
from collections.abc import Sequence
from hashlib import sha256
from random import Random
from typing import Self

from benchmarks.kills.endpoint import CRASH, WRONG
from kbevolve.archive.parts import changed
from kbevolve.archive.records import Comparison, Evaluation, Kernel, ProblemCard, Verdict
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.configs.syntax import parse
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.timing.baselines import Baseline
from kbevolve.evaluators.timing.contest import Contest
from kbevolve.evolve.proposers.tuning.tunables import declared

#: Seconds that a verdict takes, at least and at most, and that a contest takes.
SECONDS, CONTEST_SECONDS = (0.002, 0.03), 0.02


class FictitiousJudge:
    """Has the methods of `evaluators.judging.judge.Judge` that a run needs."""

    def __init__(
        self, device: Device, settings: EvaluationSettings, *, width: int = 1, builders: int = 0, plain: bool = False
    ) -> None:
        self.device, self.settings, self.width = device, settings, width

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing was started."""

    def card(self, problem: Problem) -> ProblemCard:
        return ProblemCard(problem=problem.id, device=self.device.fingerprint, precision=self.settings.precision)

    def baselines(self, problem: Problem) -> tuple[Baseline, ...]:
        return ()

    def evaluate(self, problem: Problem, kernel: Kernel) -> Evaluation:
        time.sleep(Random(f"seconds of {kernel.id}").uniform(*SECONDS))
        verdict, message = _verdict(kernel.source)
        found = Evaluation(
            kernel=kernel.id,
            problem=problem.id,
            device=self.device.fingerprint,
            precision=self.settings.precision,
            verdict=verdict,
            message=message,
        )
        if verdict is not Verdict.CORRECT:
            return found
        speed = speed_of(kernel)
        return changed(
            found,
            time_ms=1 / speed,
            reference_ms=1.0,
            speedup=speed,
            speedup_low=0.99 * speed,
            speedup_high=1.01 * speed,
            comparison=Comparison.FASTER if speed > 1 else Comparison.SLOWER,
        )

    def compete(self, problem: Problem, kernels: Sequence[Kernel], *, rounds: int) -> Contest:
        time.sleep(CONTEST_SECONDS)
        times = {kernel.id: ((1 / speed_of(kernel),) * 2,) * rounds for kernel in kernels}
        return Contest(reference=((1.0, 1.0),) * rounds, times=times, failed={}, tie=0.01)


def speed_of(kernel: Kernel) -> float:
    """Over eager, 0.1 to some 10: each value of a tunable has a factor of its own."""
    speed = 0.8
    for knob in declared(kernel.source):
        speed *= 0.8 + 0.6 * int(sha256(f"{knob.name}={knob.value}".encode()).hexdigest()[:4], 16) / 0xFFFF
    return speed


def _verdict(source: str) -> tuple[Verdict, str]:
    try:
        parse(source)
    except SyntaxError as error:
        return Verdict.REFUSED, f"not Python: line {error.lineno}: {error.msg}"
    if WRONG in source:
        return Verdict.WRONG, "wrong by 3 in row 17"
    return (Verdict.CRASHED, "signal 11 in the first call") if CRASH in source else (Verdict.CORRECT, "")
