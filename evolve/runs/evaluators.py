"""Who judges for a run: one judge in this process, several on the devices of this machine, or the judges of a cluster.

What a run finds out does not depend on it; the device's model does, and is part of the run.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Union

from kbevolve.configs.settings import Settings
from kbevolve.evaluators.device.devices import Device, find_devices, together

if TYPE_CHECKING:
    from kbevolve.evaluators.fleet.cluster import Cluster
    from kbevolve.evaluators.fleet.fleet import Fleet
    from kbevolve.evaluators.judging.judge import Judge
    from kbevolve.evolve.runs.absent import AbsentJudges

#: What evaluates, confirms, and knows cards and baselines.
Judging = Union["Judge", "Fleet", "AbsentJudges"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hands:
    """The devices that judge for a run, before anything is started on them."""

    #: One for each judge.
    devices: tuple[Device, ...]
    #: What they are to the run.
    device: Device
    #: Where they are, when they are not this machine's.
    cluster: "Cluster | None" = None

    @property
    def description(self) -> str:
        """One line for people."""
        count = len(self.devices)
        where = " of a Ray cluster" if self.cluster else ""
        return f"{count} × {self.device.description}{where}" if count > 1 or where else self.device.description


def find_hands(settings: Settings) -> Hands:
    """The devices that the settings mean, of this machine or of a cluster.

    Raises:
        SettingsError: something is no name of a device.
        EvaluatorError: one of them is not there, no cluster answers, or their models differ.
    """
    work = settings.work
    if work.workers == "ray":
        from kbevolve.evaluators.fleet.cluster import find_cluster

        cluster, devices = find_cluster(work)
        try:
            return Hands(devices=devices, device=together(devices, mixed=work.mixed_devices), cluster=cluster)
        except BaseException:
            cluster.close()
            raise
    devices = find_devices(work.devices or (settings.device,))
    return Hands(devices=devices, device=together(devices, mixed=work.mixed_devices))


def open_judges(hands: Hands, settings: Settings, *, judge: str | None = None) -> Judging:
    """Start judges on the devices; the caller closes what it gets.

    Args:
        hands: as they were found with these settings.
        settings: all settings.
        judge: "module:Class" of the judges, or "module:function" that makes one; None for `judging.judge.Judge`.

    Raises:
        EvaluatorError: one of them cannot be started.
    """
    from kbevolve.evaluators.fleet.judge_host import JUDGE, make_judge

    work, judge = settings.work, judge or JUDGE
    if hands.cluster is not None:
        return hands.cluster.fleet(hands.devices, settings.evaluation, work, judge=judge)
    if len(hands.devices) > 1:
        from kbevolve.evaluators.fleet.fleet import local_fleet

        return local_fleet(hands.devices, settings.evaluation, work, judge=judge)
    # One device of this machine needs no process of its own.
    return make_judge(hands.device, settings.evaluation, work, judge)
