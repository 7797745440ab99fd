"""What all hearings of one judge share."""

from dataclasses import dataclass

from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.builds.pool import BuildPool
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.device.gate import DeviceGate
from kbevolve.evaluators.disk_cache import DiskCache
from kbevolve.evaluators.judging.binary_dedup import ShellOf
from kbevolve.evaluators.sandbox.worker_pool import WorkerPool
from kbevolve.evaluators.timing.repeatability import Repeatability


@dataclass(frozen=True, slots=True, kw_only=True)
class Court:
    """One device, how it is judged on, and who works for the judge."""

    device: Device
    settings: EvaluationSettings
    #: To the device.
    gate: DeviceGate
    #: Warm workers.
    pool: WorkerPool
    #: Compilers.
    builds: BuildPool
    #: What is known from earlier processes.
    disk_cache: DiskCache
    #: What was measured so far.
    repeatability: Repeatability
    #: Tells kernels of one machine code; None where each is to be judged itself.
    shell_of: ShellOf | None = None
