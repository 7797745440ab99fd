"""The judge of a task of Inspect: started when it is first needed, for all samples, and from several threads."""

import threading
import weakref
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial

from anyio import to_thread

from kbevolve.archive.records import Evaluation, Kernel, ProblemCard
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import Settings
from kbevolve.evolve.runs.evaluators import JudgeDevices, Judges, open_judges


class TaskJudge:
    """Judges kernels of several problems; each kernel once, however often a solver and a scorer ask."""

    def __init__(self, settings: Settings, devices: JudgeDevices, problems: Mapping[str, Problem]) -> None:
        """`problems`: by the ids of their samples."""
        self.settings, self.device, self.problems = settings, devices.device, problems
        self._open = partial(open_judges, devices, settings)
        self._judges: Judges | None = None
        self._known: dict[tuple[str, str], Evaluation] = {}
        self._opening = threading.Lock()
        # Inspect does not say when a task is over.
        self._held = ExitStack()
        weakref.finalize(self, self._held.close)

    async def card(self, problem: Problem) -> ProblemCard:
        """What is known about a problem on this device; EvaluatorError when the reference fails."""
        return await to_thread.run_sync(lambda: self._opened().card(problem))

    async def evaluate(self, problem: Problem, kernel: Kernel) -> Evaluation:
        """The judge's findings; EvaluatorError when the reference fails."""
        key = (problem.id, kernel.id)
        if key not in self._known:
            self._known[key] = await to_thread.run_sync(lambda: self._opened().evaluate(problem, kernel))
        return self._known[key]

    def _opened(self) -> Judges:
        with self._opening:
            if self._judges is None:
                self._judges = self._open()
                self._held.callback(self._judges.close)
            return self._judges
