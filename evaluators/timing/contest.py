"""The result of a contest: several kernels and the reference, timed in fresh processes in the same rounds."""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from kbevolve.archive.records import Evaluation
from kbevolve.evaluators.timing.statistics import Speedup, round_log_ratio, speedup_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """Every kernel of the contest is in `times` or in `failed`, or memory was too short for it beside the others."""

    #: Milliseconds of the eager reference: the calls of each round.
    reference: tuple[tuple[float, ...], ...]
    #: Kernel id -> the same for the kernel, round by round.
    times: Mapping[str, tuple[tuple[float, ...], ...]]
    #: Kernel id -> the evaluation of a kernel that failed this time.
    failed: Mapping[str, Evaluation]
    #: Differences up to this share are noise between processes.
    tie: float

    def speedups(self) -> dict[str, Speedup]:
        """Kernel id -> speedup over the reference."""
        return {
            name: speedup_of([round_log_ratio(*pair) for pair in zip(self.reference, times, strict=True)], Random(name))
            for name, times in self.times.items()
        }
