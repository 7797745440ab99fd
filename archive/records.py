"""The shared vocabulary: frozen records of plain values that every folder above this one speaks.

A record is a fact and never changes. Row numbers and storage keys live in `archive.store`, not here.
Times are in milliseconds or seconds as the field says; moments are UTC, ISO 8601.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from kbevolve.archive.identity import backend_of, digest, normalise


class Backend(StrEnum):
    """What a kernel is written in; a label, never an axis of diversity."""

    TORCH = "torch"
    CPP = "cpp"
    TRITON = "triton"
    CUDA = "cuda"


class Operator(StrEnum):
    """How a child was made."""

    SEED = "seed"  # one of the starting kernels
    MUTATE = "mutate"  # one idea carried out on one parent as an edit
    REWRITE = "rewrite"  # one idea carried out as a whole new file
    CROSS = "cross"  # two parents combined
    TUNE = "tune"  # other values for the declared tunables, no model asked
    REPAIR = "repair"  # a failed child with the failure's message


class BirthState(StrEnum):
    """What the proposer delivered. What the judge then found is the kernel's `Evaluation`."""

    BORN = "born"  # a kernel that this run had not seen
    DUPLICATE = "duplicate"  # a kernel that this run had already
    NO_CODE = "no code"  # an answer without a usable kernel (prose, broken diff, cut short)
    EXHAUSTED = "exhausted"  # nothing new left to propose around these parents


class Verdict(IntEnum):
    """How far a kernel got, in order."""

    REFUSED = 0  # not in the format, or breaks a rule
    BUILD_FAILED = 1  # the compiler or the import said no
    CRASHED = 2  # it raised, or its process died
    TIMED_OUT = 3  # one of the time limits
    WRONG = 4  # it answered, wrongly
    CORRECT = 5  # right in every trial, and timed


class StopReason(StrEnum):
    """Why a run ended; the value is the sentence shown to the user."""

    GENERATIONS = "all generations were run"
    INTERRUPTED = "it was interrupted; `kbevolve resume` goes on from here"
    EXHAUSTED = "no island had anything new left to propose; --model NAME or --start FILE would bring more"
    NO_SEED = "no starting kernel was correct"
    PROPOSER = "the proposer cannot work; mend that, then `kbevolve resume`"
    EVALUATOR = "the judge cannot work; mend that, then `kbevolve resume`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A kernel is its source."""

    #: Hash of the normalised source, 16 hexadecimal digits.
    id: str
    #: What it is written in, read off the source.
    backend: Backend
    #: The whole ModelNew file.
    source: str

    @classmethod
    def from_source(cls, source: str) -> "Kernel":
        """The kernel that this file is. Comments decide neither its identity nor its backend."""
        text = normalise(source)
        return cls(id=digest(text), backend=Backend(backend_of(text)), source=source)


@dataclass(frozen=True, slots=True, kw_only=True)
class Idea:
    """An optimisation in words, before any code."""

    #: A few words.
    title: str
    #: Why it should be faster: what changes in the memory traffic, the arithmetic or the launches.
    mechanism: str
    #: One of the techniques in `configs/playbook.yaml`.
    technique: str
    #: What it attacks, e.g. "memory bandwidth", "latency", "launch overhead"; "" when not stated.
    bottleneck: str = ""
    #: Expected speedup over the parent as the proposer put it, e.g. 1.3; None when not stated.
    expected_gain: float | None = None
    #: Model name, "playbook" or a person.
    proposed_by: str = ""

    @property
    def id(self) -> str:
        """Hash of title and mechanism, 16 hexadecimal digits."""
        return digest(f"{self.title}\n{self.mechanism}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Birth:
    """The edge of the lineage: how one child came to be, written down before anything is run."""

    #: The run it belongs to.
    run: str
    #: 0 for the starting kernels.
    generation: int
    #: Index of the island that bred it.
    island: int
    #: Position among this island's births of this generation: 0 the child, 1 its first repair, …
    slot: int
    operator: Operator
    state: BirthState
    #: Kernel ids, the main parent first; empty for starting kernels.
    parents: tuple[str, ...] = ()
    #: Kernel id, None when no kernel came of it.
    kernel: str | None = None
    #: Id of the idea it carries out, None when it follows none.
    idea: str | None = None
    #: One line for people: what changed, or why there is no kernel.
    note: str = ""
    #: Everything that was sent to the model, "" when none was asked.
    prompt: str = ""
    #: Everything that came back.
    reply: str = ""
    #: Model name, "" when none was asked.
    model: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    #: Seconds spent proposing.
    seconds: float = 0.0

    @property
    def id(self) -> str:
        """Natural key, e.g. ``run/g3/i1/s0``; a replayed birth has the same one."""
        return f"{self.run}/g{self.generation}/i{self.island}/s{self.slot}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One timed block of calls, raw."""

    #: "child" or "reference".
    role: str
    #: Index of the round; the blocks of one round were timed one after another.
    round: int
    #: Milliseconds of each call, in order.
    times_ms: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What the judge found about one kernel on one problem, on one device, at one precision."""

    #: Kernel id.
    kernel: str
    #: Problem id.
    problem: str
    #: Device fingerprint (`evaluators.devices`); results of different devices are never ranked together.
    device: str
    #: The precision that the task asks for: "fp32", "tf32", "fp16" or "bf16".
    precision: str
    verdict: Verdict
    #: What to tell a person or a model about it; "" for a correct kernel with nothing to say.
    message: str = ""
    #: The class that the measured error falls in: "fp64", "fp32", "tf32", "half"; None when it was not compared.
    precision_class: str | None = None
    #: Worst centred relative error against the fp64 truth over the trials; None when not compared.
    error: float | None = None
    #: The reference's own error, measured the same way; None when not compared.
    reference_error: float | None = None
    #: KernelBench v0.1's verdict (allclose, 1e-4 fp32, 1e-2 half) beside ours; None when not compared.
    allclose: bool | None = None
    #: Median milliseconds of the kernel; None unless CORRECT.
    time_ms: float | None = None
    #: Median milliseconds of the eager reference in the same rounds; None unless CORRECT.
    reference_ms: float | None = None
    #: Reference time over kernel time, from paired rounds; None unless CORRECT.
    speedup: float | None = None
    #: 95 % interval of `speedup`; None unless CORRECT.
    speedup_low: float | None = None
    speedup_high: float | None = None
    #: Facts for filters, e.g. "clearly-slow" (timing was cut short).
    tags: tuple[str, ...] = ()
    #: Seconds spent building and importing the kernel, and in all.
    build_seconds: float = 0.0
    seconds: float = 0.0
    #: Every timed block; empty unless CORRECT.
    blocks: tuple[Measurement, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A kernel entered a niche of an island; insert-only, so the history of every niche is kept."""

    run: str
    island: int
    #: Niche key, e.g. "m1c2d1l0" (`islands.descriptors`).
    niche: str
    kernel: str
    generation: int
    #: "birth" or "migration".
    via: str


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
