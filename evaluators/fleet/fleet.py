"""Several judges at once, one for each device, behind the contracts of one.

Each judge runs in a process of its own, and may die of a kernel, of its device or of its host. A kernel that was in it
is evaluated again, alone in a judge, so that a second death counts against this kernel and no other. A contest runs
whole on one device: it compares times, and times of two devices are never compared.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, Self

from kbevolve import __version__
from kbevolve.archive.records import Evaluation, Kernel, ProblemCard, Verdict, changed
from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import EvaluationSettings, WorkSettings
from kbevolve.evaluators.device.devices import Device, together
from kbevolve.evaluators.fleet.judge_host import JUDGE, JudgeDied, JudgeInfo, JudgeRequest, JudgeSpec, RemoteJudge
from kbevolve.evaluators.fleet.judge_process import JudgeProcess
from kbevolve.evaluators.fleet.slots import Slot, Slots
from kbevolve.evaluators.timing.baselines import Baseline
from kbevolve.evaluators.timing.contest import Contest

#: Judges that may die of one request.
_MOST_DEATHS = 2
#: Seconds of a request beside the kernels' own limits: the problem is set up, baselines are compiled, other processes
#: use the device. Too many cost time on one device only; too few would count against a kernel that did nothing wrong.
_OVERHEAD_SECONDS = 1800.0


class Fleet:
    """Judges kernels on several devices; implements `Evaluator` and `Confirmer`. Safe for several threads."""

    def __init__(
        self,
        slots: Sequence[Slot],
        settings: EvaluationSettings,
        *,
        mixed: bool = False,
        closing: Callable[[], None] = lambda: None,
    ) -> None:
        """Start all judges; EvaluatorError when one cannot be started, or the devices differ.

        Args:
            slots: one for each judge; at least one.
            settings: for time limits, and for the evaluation of a kernel that no judge survives.
            mixed: whether devices of different models may work together.
            closing: called once, after the judges ended.
        """
        self.settings = settings
        self._fingerprints: frozenset[str] | None = None
        with ExitStack() as stack:
            stack.callback(closing)
            self._slots = Slots(slots, self._check)
            stack.callback(self._slots.close)
            infos = [judge.info for judge in self._slots.judges]
            #: The devices as one: the device of every evaluation.
            self.device: Device = together([info.device for info in infos], mixed=mixed)
            self._open = stack.pop_all()
        self._fingerprints = frozenset(info.device.fingerprint for info in infos)
        #: Kernels that are evaluated at once.
        self.width = sum(info.width for info in infos)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all judges; evaluations under way end with an error. May be called twice."""
        self._open.close()

    def card(self, problem: Problem) -> ProblemCard:
        """What is known about a problem; EvaluatorError when the reference fails or no device is left."""
        found: ProblemCard = self._handle_or_raise(JudgeRequest(method="card", problem=problem))
        return replace(found, device=self.device.fingerprint)

    def evaluate(self, problem: Problem, kernel: Kernel) -> Evaluation:
        """Implements `Evaluator.evaluate`, on the device with the fewest kernels under way."""
        try:
            found: Evaluation = self._handle(JudgeRequest(method="evaluate", problem=problem, kernels=(kernel,)))
        except _JudgesDied as deaths:
            # If judges die without a kernel, too, the kernel is not to blame. A card runs the reference, in a judge and
            # in a worker.
            try:
                self.card(problem)
            except EvaluatorError as error:
                raise EvaluatorError(f"{deaths}, and then the reference failed as well: {error}") from None
            self._slots.forgive(deaths.first)
            return Evaluation(
                kernel=kernel.id,
                problem=problem.id,
                device=self.device.fingerprint,
                precision=self.settings.precision,
                verdict=Verdict.CRASHED,
                message=f"stopped: {deaths} while they evaluated this kernel, the second one with no other kernel",
            )
        return replace(found, device=self.device.fingerprint)

    def compete(self, problem: Problem, kernels: Sequence[Kernel], *, rounds: int) -> Contest:
        """Implements `Confirmer.compete`, all on one device.

        EvaluatorError also means that two judges died of the contest and of none of its kernels alone.
        """
        request = JudgeRequest(method="compete", problem=problem, kernels=tuple(kernels), rounds=rounds)
        try:
            contest: Contest = self._handle(request)
        except _JudgesDied as deaths:
            return self._compete_without_culprits(request, deaths)
        failed = {name: replace(found, device=self.device.fingerprint) for name, found in contest.failed.items()}
        return replace(contest, failed=failed)

    def baselines(self, problem: Problem) -> tuple[Baseline, ...]:
        """PyTorch's own ways to run the reference, timed against eager on one device."""
        found: tuple[Baseline, ...] = self._handle_or_raise(JudgeRequest(method="baselines", problem=problem))
        return found

    def _compete_without_culprits(self, request: JudgeRequest, deaths: "_JudgesDied") -> Contest:
        """Judges died of a contest: kernels that fail alone are removed, and the others compete again."""
        self._slots.forgive(deaths.first)  # if a kernel did not cause it, `evaluate` counts it again
        found = [self.evaluate(request.problem, kernel) for kernel in request.kernels]
        failed = {one.kernel: one for one in found if one.verdict is not Verdict.CORRECT}
        if not failed:
            raise deaths.without_culprit(request) from None
        others = [kernel for kernel in request.kernels if kernel.id not in failed]
        contest = self.compete(request.problem, others, rounds=request.rounds)
        return replace(contest, failed={**contest.failed, **failed})

    def _handle_or_raise(self, request: JudgeRequest) -> Any:
        try:
            return self._handle(request)
        except _JudgesDied as deaths:
            raise deaths.without_culprit(request) from None

    def _handle(self, request: JudgeRequest) -> Any:
        deaths: list[str] = []
        failed = False
        tried: list[Slot] = []  # a broken device must not count against a kernel twice
        while True:
            lease = self._slots.acquire(alone=bool(deaths), avoid=tried)
            slot = lease.slot
            tried.append(slot)
            try:
                found = lease.judge.ask(request, seconds=self._time_limit(request, lease.judge))
            except JudgeDied as death:
                # A second death counts against the kernels that were alone there, not against the device.
                self._slots.report_death(lease, str(death), counts=not (request.kernels and deaths))
                deaths.append(f"{slot.name}: {death}")
                if len(deaths) == _MOST_DEATHS:
                    raise _JudgesDied(f"{_MOST_DEATHS} judges died ({'; '.join(deaths)})", tried[0]) from None
            except EvaluatorError as error:
                # The device may be the cause, or the problem: the next attempt shows which.
                self._slots.release(lease, failure=str(error))
                if failed:
                    raise
                failed = True
            except BaseException:
                self._slots.release(lease)
                raise
            else:
                self._slots.release(lease, worked=True)
                if isinstance(found, Evaluation):  # each judge sees one device only, and calls it the first
                    found = changed(found, device_instance=f"{lease.judge.info.host}/{slot.name}")
                return found

    def _time_limit(self, request: JudgeRequest, judge: RemoteJudge) -> float:
        """Seconds after which a judge that has not answered hangs."""
        # A kernel is evaluated at most twice, each time within its limit, and may wait for all others in the judge.
        kernels = judge.info.width + len(request.kernels)
        return _OVERHEAD_SECONDS + 2 * kernels * self.settings.total_seconds

    def _check(self, info: JudgeInfo) -> None:
        where = f"the judge on {info.host}"
        if info.version != __version__:
            raise EvaluatorError(
                f"{where} is kbevolve {info.version}, this is {__version__}; install the same version there"
            )
        if self._fingerprints is not None and info.device.fingerprint not in self._fingerprints:
            raise EvaluatorError(
                f"{where} returned on {info.device.fingerprint}, which is none of this run's devices: "
                f"{self.device.fingerprint}"
            )


class _JudgesDied(Exception):
    """The most judges that may die of one request died, the first of them in `first`; the message is one line."""

    def __init__(self, message: str, first: Slot) -> None:
        super().__init__(message)
        self.first = first

    def without_culprit(self, request: JudgeRequest) -> EvaluatorError:
        """The error when no kernel can be blamed."""
        names = ", ".join(kernel.id for kernel in request.kernels) or request.problem.name
        return EvaluatorError(f"{self} over {request.method} of {names}; see `kbevolve doctor`")


def local_fleet(
    devices: Sequence[Device], settings: EvaluationSettings, work: WorkSettings, *, judge: str = JUDGE
) -> Fleet:
    """One judge process for each of these devices of this machine; raises as `Fleet`."""
    names = [device.torch_name for device in devices]
    slots = []
    for number, device in enumerate(devices):
        spec = JudgeSpec(
            device=device.torch_name,
            settings=settings,
            work=work,
            judge=judge,
            # Judges of one CPU use all of its cores in turn, so that each times as a single one would.
            sharing=len(devices) if device.type == "cuda" else 1,
            share=number,
        )
        name = f"{device.torch_name} ({number + 1})" if names.count(device.torch_name) > 1 else device.torch_name
        slots.append(Slot(name=name, start=partial(JudgeProcess, spec, device)))
    return Fleet(slots, settings, mixed=work.mixed_devices)
