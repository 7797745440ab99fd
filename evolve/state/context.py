"""The facts of one run that stay the same during a session."""

from dataclasses import dataclass, field
from functools import cached_property

from kbevolve.archive.records import Kernel, ProblemCard, Run
from kbevolve.archive.run_view import RunView
from kbevolve.archive.store import Archive
from kbevolve.configs.problem import Problem
from kbevolve.configs.reference import as_model_new
from kbevolve.configs.settings import Settings
from kbevolve.evaluators.device.devices import Device
from kbevolve.evolve.state.transfer import TransferredKnowledge


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """One run: its records, its problem and device, and the settings of this session."""

    archive: Archive
    #: The run's record, already in the archive.
    run: Run
    problem: Problem
    device: Device
    settings: Settings
    #: What the judge measured about the problem; None when it was not analysed.
    card: ProblemCard | None = None
    #: Knowledge of other problems; the same in all sessions of the run.
    transfer: TransferredKnowledge = field(default_factory=TransferredKnowledge)

    @cached_property
    def view(self) -> RunView:
        """What the archive holds of the run."""
        return self.archive.run_view(self.run)

    @cached_property
    def reference(self) -> str:
        """Id of the kernel that is the reference itself."""
        return Kernel.from_source(as_model_new(self.problem.source_for(self.device.type))).id
