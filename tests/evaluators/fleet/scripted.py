"""Judges that follow a script, and kernels for them."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from kbevolve import __version__
from kbevolve.archive.records import Evaluation, Kernel
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.fleet.fleet import Fleet
from kbevolve.evaluators.fleet.judge_host import JudgeDied, JudgeInfo, JudgeRequest
from kbevolve.evaluators.fleet.slots import Slot
from tests.evaluators.simulated import SimulatedJudge, faulty
from tests.evolve.doubles import problem

DEVICE = Device(type="cpu", index=0, fingerprint="cpu/double", description="a double")


SETTINGS = EvaluationSettings()


class ScriptedJudge:
    """Implements `RemoteJudge` in this process: records parallel requests, and dies of those that are `deadly`."""

    def __init__(
        self, width: int = 1, deadly: Callable[[JudgeRequest], bool] = lambda _: False, device: Device = DEVICE
    ) -> None:
        self.info = JudgeInfo(device=device, width=width, version=__version__, host="here", pid=1)
        self.deadly = deadly
        self.judge: Any = SimulatedJudge(device, SETTINGS)
        self.dead = threading.Event()
        self.under_way: list[str] = []
        #: Kernel or method -> what was under way when its request arrived.
        self.beside: dict[str, list[str]] = {}

    def ask(self, request: JudgeRequest, *, seconds: float) -> Any:
        name = request.kernels[0].id if request.kernels else request.method
        self.beside[name] = list(self.under_way)
        self.under_way.append(name)
        try:
            if self.deadly(request):
                self.dead.set()
            found = request.call(self.judge)
            if self.dead.is_set():
                raise JudgeDied("its process died")
            return found
        finally:
            self.under_way.remove(name)

    def close(self) -> None:
        self.dead.set()


class FailingJudge(ScriptedJudge):
    """Raises an error for every request."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def ask(self, request: JudgeRequest, *, seconds: float) -> Any:
        raise self.error


class Scripts:
    """Slots whose judges are made by a function of the slot and the number of judges that it had before."""

    def __init__(self, count: int, make: Callable[[int, int], ScriptedJudge]) -> None:
        self.judges: list[list[ScriptedJudge]] = [[] for _ in range(count)]
        self._make = make

    def fleet(self, **options: Any) -> Fleet:
        made = [Slot(name=f"slot {number}", start=partial(self._start, number)) for number in range(len(self.judges))]
        return Fleet(made, SETTINGS, **options)

    def _start(self, number: int, given_up: Callable[[], bool]) -> ScriptedJudge:
        judge = self._make(number, len(self.judges[number]))
        self.judges[number].append(judge)
        return judge


def evaluate_all(fleet: Fleet, asked: list[Kernel], threads: int) -> list[Evaluation]:
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda one: fleet.evaluate(problem(), one), asked))


def kernels(count: int, seconds: float = 0.0) -> list[Kernel]:
    return [faulty(SECONDS=seconds, NUMBER=number) for number in range(count)]
