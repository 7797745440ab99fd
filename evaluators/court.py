"""What all hearings of one judge share."""

from dataclasses import dataclass

from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.builds.pool import BuildPool
from kbevolve.evaluators.devices import Device
from kbevolve.evaluators.isolation.workers import WorkerPool
from kbevolve.evaluators.shelf import Shelf
from kbevolve.evaluators.timing.gate import Gate
from kbevolve.evaluators.timing.repeatability import Repeatability
from kbevolve.evaluators.twins import ShellOf


@dataclass(frozen=True, slots=True, kw_only=True)
class Court:
    """One device, how it is judged on, and who works for the judge."""

    device: Device
    settings: EvaluationSettings
    #: To the device.
    gate: Gate
    #: Warm workers.
    pool: WorkerPool
    #: Compilers.
    builds: BuildPool
    #: What is known from earlier processes.
    shelf: Shelf
    #: What was measured so far.
    repeatability: Repeatability
    #: Tells kernels of one machine code; None where each is to be judged itself.
    shell_of: ShellOf | None = None
