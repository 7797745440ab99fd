"""The judges of a run: one in this process, several on the devices of this machine, those of a cluster, or none.

The results of a run do not depend on which; the model of the device does matter, and is part of the run.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, Union

from kbevolve.archive.records import Kernel, ProblemCard, Run
from kbevolve.archive.run_queries import precision_of
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import Unanswered
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import EvaluationSettings, Settings
from kbevolve.evaluators.device.devices import Device, find_devices, together
from kbevolve.evaluators.sandbox import launch
from kbevolve.evaluators.sandbox.forkserver import ForkServer
from kbevolve.evaluators.sandbox.gpu import all_gpus
from kbevolve.evaluators.timing.baselines import Baseline
from kbevolve.islands.source.canonical import shell_of

if TYPE_CHECKING:
    from kbevolve.evaluators.fleet.cluster import Cluster
    from kbevolve.evaluators.fleet.fleet import Fleet
    from kbevolve.evaluators.judging.judge import Judge

#: They evaluate, hold contests, analyse problems and time baselines.
Judges = Union["Judge", "Fleet"]
#: The judge of a search, as a text: a fleet makes its judges in other processes.
SEARCH_JUDGE = "kbevolve.evolve.runs.evaluators:search_judge"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeDevices:
    """The devices of a run's judges, before any judge is started."""

    #: One for each judge.
    devices: tuple[Device, ...]
    #: The device that the run records: the model of all of them.
    device: Device
    #: The cluster that has them; None for this machine.
    cluster: "Cluster | None" = None
    #: Of the only device, opened before torch described it; its judge closes it.
    fork_server: ForkServer | None = field(default=None, compare=False)

    @property
    def are_apart(self) -> bool:
        """Whether there are several of one model on this machine, so that each can have a problem of its own."""
        several = len(self.devices) > 1 and self.cluster is None
        return several and {one.fingerprint for one in self.devices} == {self.device.fingerprint}

    @property
    def description(self) -> str:
        """One line for people."""
        count = len(self.devices)
        where = " of a Ray cluster" if self.cluster else ""
        return f"{count} × {self.device.description}{where}" if count > 1 or where else self.device.description


def find_judge_devices(settings: Settings, *, judged: bool = False) -> JudgeDevices:
    """The devices that the settings name, of this machine or of a cluster.

    `judged`: whether a judge will be opened, whose first process can import torch meanwhile.

    Raises:
        SettingsError: a name is not that of a device.
        EvaluatorError: a device is missing, no cluster answers, or the models differ.
    """
    work = settings.work
    if work.workers == "ray":
        from kbevolve.evaluators.fleet.cluster import find_cluster

        cluster, devices = find_cluster(work)
        try:
            return JudgeDevices(devices=devices, device=together(devices, mixed=work.mixed_devices), cluster=cluster)
        except BaseException:
            cluster.close()
            raise
    names = work.devices or (settings.device,)
    early = _early_fork_server(names) if judged else {}
    devices = find_devices(names)
    device = together(devices, mixed=work.mixed_devices)
    return JudgeDevices(devices=devices, device=device, fork_server=early.get(device.type))


def open_judges(devices: JudgeDevices, settings: Settings, *, judge: str | None = None) -> Judges:
    """Start judges on the devices; the caller closes them.

    `judge` is "module:Class", or "module:function" that makes one; None for `judging.judge.Judge`.

    Raises:
        EvaluatorError: a judge cannot be started.
    """
    from kbevolve.evaluators.fleet.judge_host import JUDGE, make_judge

    work, judge = settings.work, judge or JUDGE
    if devices.cluster is not None:
        return devices.cluster.fleet(devices.devices, settings.evaluation, work, judge=judge)
    if len(devices.devices) > 1:
        from kbevolve.evaluators.fleet.fleet import local_fleet

        return local_fleet(devices.devices, settings.evaluation, work, judge=judge)
    # One device of this machine needs no process of its own.
    return make_judge(devices.device, settings.evaluation, work, judge, fork_server=devices.fork_server)


def _early_fork_server(names: Sequence[str]) -> dict[str, ForkServer]:
    """By its type, a fork server for the only device that these names will probably find."""
    if len(names) > 1 or names[0] == "all":
        return {}
    device_type = "cuda" if names[0] != "cpu" and all_gpus() else "cpu"
    server = launch.open_fork_server_early(device_type)
    return {device_type: server} if server else {}


def search_judge(device: Device, settings: EvaluationSettings, **options: Any) -> "Judge":
    """A judge that measures kernels with identical binaries once (`evaluators.judging.binary_dedup`)."""
    from kbevolve.evaluators.judging.judge import Judge

    return Judge(device, settings, shell_of=shell_of, **options)


@dataclass(slots=True, kw_only=True)
class AbsentJudges:
    """Takes the place of judges that are not available: it knows what the archive knows, and judges nothing."""

    archive: Archive
    run: Run
    #: Any number would do: no kernel waits for another.
    width: int = 1
    #: Whether a judge was needed.
    needed: bool = False

    def card(self, problem: Problem) -> ProblemCard:
        """The analysis of an earlier judge.

        Raises:
            Unanswered: there is none.
        """
        known = self.archive.problems.card(problem.id, self.run.device, precision_of(self.run))
        return known or self._wait(f"no judge has seen {problem.name} on {self.run.device}; `kbevolve ask` there first")

    def evaluate(self, problem: Problem, kernel: Kernel) -> NoReturn:
        """Raises Unanswered: the kernel waits for a judge."""
        self._wait(f"kernel {kernel.id} waits for its verdict")

    def compete(self, problem: Problem, kernels: Sequence[Kernel], *, rounds: int) -> NoReturn:
        """Raises Unanswered: the contest waits for a judge."""
        self._wait(f"a contest of {' and '.join(kernel.id for kernel in kernels)} waits for a judge")

    def baselines(self, problem: Problem) -> tuple[Baseline, ...]:
        """None, without a judge."""
        return ()

    def _wait(self, message: str) -> NoReturn:
        self.needed = True
        raise Unanswered(message)
