"""Several judges at once, one for each device, behind the contracts of one.

Each judge lives in a process of its own and may die of what it judges, of its device or of its host. A kernel that it
held is judged again, alone on a judge, so that a second death speaks against this kernel and no other. Contests run
whole on one device: they compare times, and times of two devices are never compared.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Self

from kbevolve import __version__
from kbevolve.archive.parts import changed
from kbevolve.archive.records import Evaluation, Kernel, ProblemCard, Verdict
from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import EvaluationSettings, WorkSettings
from kbevolve.evaluators.device.devices import Device, together
from kbevolve.evaluators.fleet.judge_host import JUDGE, Commission, FarJudge, Introduction, JudgeDied, Order
from kbevolve.evaluators.fleet.judge_process import JudgeProcess
from kbevolve.evaluators.fleet.slots import Opening, Post, Posts
from kbevolve.evaluators.timing.baselines import Baseline
from kbevolve.evaluators.timing.contest import Contest

#: Judges that one order may cost.
_MOST_DEATHS = 2
#: Seconds of an order that no kernel's own limit covers: the problem is set up, baselines are compiled, other processes
#: have the device. Too long costs time on one device only; too short would speak against a kernel that did nothing.
_ASIDE_SECONDS = 1800.0


class Fleet:
    """Judges kernels on several devices; implements `Evaluator` and `Confirmer`. Safe for several threads."""

    def __init__(
        self,
        openings: Sequence[Opening],
        settings: EvaluationSettings,
        *,
        mixed: bool = False,
        closing: Callable[[], None] = lambda: None,
    ) -> None:
        """Hire all judges.

        Args:
            openings: where; at least one.
            settings: how kernels are judged: how long that may take, and what is said about one that no judge survives.
            mixed: whether devices of different models may work together.
            closing: called once after the judges were ended.

        Raises:
            EvaluatorError: a judge cannot be had, or their devices differ.
        """
        self.settings = settings
        self._closing = closing
        self._kinds: frozenset[str] | None = None
        try:
            self._posts = Posts(openings, self._admit)
            introductions = [judge.introduction for judge in self._posts.judges]
            #: The devices as one: what every evaluation says that it was made on.
            try:
                self.device: Device = together([one.device for one in introductions], mixed=mixed)
            except BaseException:
                self._posts.close()
                raise
        except BaseException:
            closing()
            raise
        self._kinds = frozenset(one.device.fingerprint for one in introductions)
        #: Kernels that are judged at once.
        self.width = sum(one.width for one in introductions)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all judges; evaluations under way end with an error. May be called twice."""
        self._posts.close()
        closing, self._closing = self._closing, lambda: None
        closing()

    def card(self, problem: Problem) -> ProblemCard:
        """What is known about a problem on these devices.

        Raises:
            EvaluatorError: the reference fails, or no device is left.
        """
        found: ProblemCard = self._insist(Order(what="card", problem=problem))
        return replace(found, device=self.device.fingerprint)

    def evaluate(self, problem: Problem, kernel: Kernel) -> Evaluation:
        """Judge one kernel on the device that has the fewest under way.

        Raises:
            EvaluatorError: the reference fails, or no device is left.
        """
        try:
            found: Evaluation = self._carry_out(Order(what="evaluate", problem=problem, kernels=(kernel,)))
        except _Fatal as fatal:
            # Is it this kernel, or do judges die of themselves? Setting the problem up runs its reference, in a judge
            # and in a worker.
            try:
                self.card(problem)
            except EvaluatorError as error:
                raise EvaluatorError(f"{fatal}, and then the reference failed as well: {error}") from None
            self._posts.forgive(fatal.first)
            return Evaluation(
                kernel=kernel.id,
                problem=problem.id,
                device=self.device.fingerprint,
                precision=self.settings.precision,
                verdict=Verdict.CRASHED,
                message=f"stopped: {fatal} while this kernel was judged there, the second time with nothing beside it",
            )
        return replace(found, device=self.device.fingerprint)

    def compete(self, problem: Problem, kernels: Sequence[Kernel], *, rounds: int) -> Contest:
        """Time kernels and the reference against each other, all on one device.

        Raises:
            EvaluatorError: the reference fails, no device is left, or the contest ended two judges and none of its
                kernels does so alone.
        """
        order = Order(what="compete", problem=problem, kernels=tuple(kernels), rounds=rounds)
        try:
            contest: Contest = self._carry_out(order)
        except _Fatal as fatal:
            return self._compete_without_killers(order, fatal)
        failed = {name: replace(found, device=self.device.fingerprint) for name, found in contest.failed.items()}
        return replace(contest, failed=failed)

    def baselines(self, problem: Problem) -> tuple[Baseline, ...]:
        """PyTorch's own ways to run the reference, timed against eager on one device.

        Raises:
            EvaluatorError: eager itself fails, or no device is left.
        """
        found: tuple[Baseline, ...] = self._insist(Order(what="baselines", problem=problem))
        return found

    def _compete_without_killers(self, order: Order, fatal: "_Fatal") -> Contest:
        """A contest ended judges: whoever does not pass alone is out, and the others compete again."""
        self._posts.forgive(fatal.first)  # that it counts, if no kernel is found that did it, is for `evaluate` to say
        found = [self.evaluate(order.problem, kernel) for kernel in order.kernels]
        failed = {one.kernel: one for one in found if one.verdict is not Verdict.CORRECT}
        if not failed:
            raise _blameless(order, fatal) from None
        others = [kernel for kernel in order.kernels if kernel.id not in failed]
        contest = self.compete(order.problem, others, rounds=order.rounds)
        return replace(contest, failed={**contest.failed, **failed})

    def _insist(self, order: Order) -> Any:
        try:
            return self._carry_out(order)
        except _Fatal as fatal:
            raise _blameless(order, fatal) from None

    def _carry_out(self, order: Order) -> Any:
        deaths: list[str] = []
        failed = False
        tried: list[Post] = []  # a sick device must not speak against a kernel twice
        while True:
            seat = self._posts.take(alone=bool(deaths), avoid=tried)
            tried.append(seat.post)
            try:
                found = seat.judge.ask(order, seconds=self._patience(order, seat.judge))
            except JudgeDied as death:
                # A second death speaks against the kernels that were alone there, not against the device.
                self._posts.bury(seat, str(death), counts=not (order.kernels and deaths))
                deaths.append(f"{seat.post.opening.name}: {death}")
                if len(deaths) == _MOST_DEATHS:
                    raise _Fatal(f"{_MOST_DEATHS} judges died ({'; '.join(deaths)})", tried[0]) from None
            except EvaluatorError as error:
                # The device's fault or the problem's: another judge, or another try, tells which.
                self._posts.give_back(seat, failure=str(error))
                if failed:
                    raise
                failed = True
            except BaseException:
                self._posts.give_back(seat)
                raise
            else:
                self._posts.give_back(seat, worked=True)
                if isinstance(found, Evaluation):  # each judge sees one device and calls it the first
                    found = changed(found, device_instance=f"{seat.judge.introduction.host}/{seat.post.opening.name}")
                return found

    def _patience(self, order: Order, judge: FarJudge) -> float:
        """Seconds after which a judge that has not answered hangs."""
        # A kernel is heard twice at most, each time within its limit; it may have to wait for all others at the judge.
        kernels = judge.introduction.width + len(order.kernels)
        return _ASIDE_SECONDS + 2 * kernels * self.settings.total_seconds

    def _admit(self, introduction: Introduction) -> None:
        where = f"the judge on {introduction.host}"
        if introduction.version != __version__:
            raise EvaluatorError(
                f"{where} is of kbevolve {introduction.version}, this is {__version__}; install the same one there"
            )
        if self._kinds is not None and introduction.device.fingerprint not in self._kinds:
            raise EvaluatorError(
                f"{where} came back on {introduction.device.fingerprint}, which is none of this run's: "
                f"{self.device.fingerprint}"
            )


class _Fatal(Exception):
    """As many judges as may be died of one order, the first of them at `first`; the message is one line."""

    def __init__(self, words: str, first: Post) -> None:
        super().__init__(words)
        self.first = first


def _blameless(order: Order, fatal: _Fatal) -> EvaluatorError:
    """What is said when judges died of an order and no kernel can be blamed."""
    names = ", ".join(kernel.id for kernel in order.kernels) or order.problem.name
    return EvaluatorError(f"{fatal} over {order.what} of {names}; see `kbevolve doctor`")


def local_fleet(
    devices: Sequence[Device], settings: EvaluationSettings, work: WorkSettings, *, judge: str = JUDGE
) -> Fleet:
    """One judge process for each of these devices of this machine.

    Raises:
        EvaluatorError: a judge cannot be had, or the devices differ.
    """
    openings = []
    for number, device in enumerate(devices):
        twice = [other.torch_name for other in devices].count(device.torch_name) > 1
        commission = Commission(
            device=device.torch_name,
            settings=settings,
            work=work,
            judge=judge,
            # Judges of one CPU take turns on all of its cores: each times as the only one would.
            sharing=len(devices) if device.type == "cuda" else 1,
            share=number,
        )
        openings.append(
            Opening(
                name=f"{device.torch_name} ({number + 1})" if twice else device.torch_name,
                hire=partial(_hire_local, commission, device),
            )
        )
    return Fleet(openings, settings, mixed=work.mixed_devices)


def _hire_local(commission: Commission, device: Device, given_up: Callable[[], bool]) -> JudgeProcess:
    return JudgeProcess(commission, device, given_up=given_up)
