"""Records of runs: a search, the problem and the device that it is about, and why it stopped."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class StopReason(StrEnum):
    """Why a run ended; the value is the sentence shown to the user."""

    GENERATIONS = "all generations were run"
    INTERRUPTED = "it was interrupted; `kbevolve resume` goes on from here"
    EXHAUSTED = "no island had anything new left to propose; --model NAME or --start FILE would bring more"
    TARGET_REACHED = "the target speedup was reached"
    ROOFLINE_REACHED = "the share of the roofline that was asked for was reached"
    EVALUATIONS_SPENT = "its evaluations are spent; `kbevolve resume --max-evaluations N` allows more"
    DEVICE_TIME_SPENT = "its device time is spent; `kbevolve resume --max-device-seconds N` allows more"
    DOLLARS_SPENT = "its dollars are spent; `kbevolve resume --max-dollars N` allows more"
    TOKENS_SPENT = "its tokens are spent; `kbevolve resume --max-tokens N` allows more"
    WALL_TIME_SPENT = "its time is spent; `kbevolve resume --max-wall 3h` allows more"
    STAGNATION = (
        "no improvement for long, although it explored and restarted islands; "
        "`kbevolve resume --set search.patience=0` goes on"
    )
    WAITING = "it waits for answers from outside; `kbevolve ask` shows the questions, `kbevolve tell` takes answers"
    NO_SEED = "no starting kernel was correct"
    PROPOSER = "its model gave no answers; repair that, then `kbevolve resume`"
    EVALUATOR = "its kernels could not be judged; repair that, then `kbevolve resume`"


#: Precision of a task -> the precision class whose roofline applies.
_TASK_CLASS = {"fp32": "fp32", "tf32": "tf32", "fp16": "half", "bf16": "half"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemCard:
    """What the judge measured about a problem before any kernel, on one device at one precision."""

    #: Problem id, device fingerprint, precision.
    problem: str
    device: str
    precision: str
    #: Flag -> the reason in one sentence, e.g. {"degenerate": "an output of zeros passes: …"}. Flags: "degenerate",
    #: "low-signal", "launch-bound", "random", "dropout", "nondeterministic", "dead-code", "reducible", "in-place",
    #: "not-finite", "scaled-weights", "tf32-reference".
    flags: Mapping[str, str] = field(default_factory=dict)
    #: Bytes of all inputs, of the weights, and of the outputs; floating-point operations of the reference's products.
    input_bytes: int = 0
    weight_bytes: int = 0
    output_bytes: int = 0
    flops: int = 0
    #: `flops` without those that the reasons of "reducible" save.
    required_flops: int = 0
    #: Measured rates of the device: "copy" -> bytes per second, format of the operands ("fp32", "tf32", "fp16", …) ->
    #: operations per second of a product. Empty in older cards, as are `resources`.
    peaks: Mapping[str, float] = field(default_factory=dict)
    #: What kernels share on the device: "L2", "shared" and others, as `evaluators.device.devices.resources` has them.
    resources: Mapping[str, int] = field(default_factory=dict)
    #: Milliseconds of the eager reference, warm.
    eager_ms: float = 0.0
    #: Way to run the reference ("eager", "compile", …) -> eager's time over its own, of those that worked; empty where
    #: they were not measured.
    baselines: Mapping[str, float] = field(default_factory=dict)
    #: Milliseconds in which all of these bytes are moved once; where `roofline_ms` is more, arithmetic bounds it.
    memory_ms: float = 0.0
    #: Precision class -> milliseconds at the roofline: everything read and written once, all operations at peak.
    roofline_ms: Mapping[str, float] = field(default_factory=dict)
    #: Precision class -> milliseconds that no correct kernel can beat (outputs written, irreducible operations).
    floor_ms: Mapping[str, float] = field(default_factory=dict)

    @property
    def degenerate(self) -> bool:
        """Whether an output that ignores the input would pass."""
        return "degenerate" in self.flags

    @property
    def unjudgeable(self) -> str:
        """Why no kernel can be judged on the problem, whatever is forced; "" when kernels can be."""
        is_random = self.flags.keys() >= {"random", "nondeterministic"}
        return "its answer is random, and no kernel can be compared with it" if is_random else ""

    @property
    def task_roofline_ms(self) -> float:
        """Milliseconds at the roofline of the precision that the task asks for; 0 when it was not computed."""
        return self.roofline_ms.get(_TASK_CLASS[self.precision], 0.0)

    @property
    def bound_by(self) -> str:
        """What limits the roofline at the task's precision: ``memory`` or ``arithmetic``."""
        return "arithmetic" if self.task_roofline_ms > self.memory_ms * 1.001 else "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDevice:
    """A device on which a run of this archive was judged."""

    #: As evaluations name it.
    fingerprint: str
    #: "cpu" or "cuda".
    type: str
    #: One line for people and models.
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One search: everything that is needed to replay it."""

    #: e.g. "matmul-20261121-083012-3f2a".
    id: str
    #: Problem name as asked for, and the id of its text.
    problem_name: str
    problem: str
    #: Device fingerprint.
    device: str
    seed: int
    #: The whole settings, as JSON.
    settings: str
    #: Package versions, e.g. {"kbevolve": "0.1.0", "torch": "2.13.0"}.
    versions: Mapping[str, str] = field(default_factory=dict)
    #: Moment of the start, UTC, ISO 8601.
    created: str = ""
