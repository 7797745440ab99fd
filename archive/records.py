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

    CREATED = "created"  # a kernel that this run had not seen
    DUPLICATE = "duplicate"  # a kernel that this run had already
    NEAR_DUPLICATE = "near duplicate"  # nearly one that failed or was slow: not judged, asked for once more
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

    @property
    def repairable(self) -> bool:
        """Whether a repair turn can help: the failure has a message, and no clock has refuted the idea."""
        return self in (Verdict.REFUSED, Verdict.BUILD_FAILED, Verdict.CRASHED, Verdict.WRONG)


class Trait(StrEnum):
    """What stands in compiled code and shows what it does; read by disassemblers, never by models."""

    VECTOR_ACCESS = "vector access"  # loads or stores of several elements a lane, or SIMD loads on a CPU
    SHARED_MEMORY = "shared memory"  # loads or stores of memory that a block shares
    ASYNC_COPY = "asynchronous copy"  # cp.async, bulk and tensor copies; prefetches on a CPU
    STREAMING = "streaming"  # accesses marked to be evicted first, or past the caches
    WARP_SHUFFLES = "warp shuffles"  # lanes that exchange registers
    PACKED_ARITHMETIC = "packed arithmetic"  # several numbers an instruction: half2 on a GPU, SIMD on a CPU
    MATRIX_UNITS = "matrix units"  # tensor cores, AMX
    ATOMICS = "atomics"  # read-modify-write of memory that others see


class Comparison(StrEnum):
    """How a kernel's speed compares with another's, beyond what noise explains."""

    FASTER = "faster"
    TIE = "tie"
    SLOWER = "slower"


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
    WALL_TIME_SPENT = "its time is over; `kbevolve resume --max-wall 3h` allows more"
    STAGNATION = (
        "nothing better came for long, though it explored and went back; "
        "`kbevolve resume --set search.patience=0` goes on"
    )
    WAITING = "it waits for answers from outside; `kbevolve ask` shows what is asked, `kbevolve tell` takes answers"
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
    #: Kernel id, None when no kernel came of it. Of a duplicate: the kernel that it equals.
    kernel: str | None = None
    #: Kernel id of what was written, where it equals `kernel` but for comments, layout and names; None elsewhere.
    proposed_kernel: str | None = None
    #: Hash of the kernel's canonical form (`islands.source.canonical`); "" where there is no kernel, or nobody looked.
    canonical_hash: str = ""
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
    #: Name that the settings have for it, where they name several; "" else. An endpoint may tell another in `model`.
    model_alias: str = ""
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

    #: "child", "reference" or "rival".
    role: str
    #: Index of the round; the blocks of one round were timed one after another.
    round: int
    #: Milliseconds of each call, in order.
    times_ms: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One kernel that the device ran during a call, as the profiler saw it; for feedback, never for a verdict."""

    #: Name as the profiler tells it, shortened.
    name: str
    #: Share of the call's device time, 0 to 1.
    share: float
    #: Microseconds a launch, and launches a call.
    microseconds: float
    launches: float
    #: Registers a thread, spilled bytes a thread, bytes of shared memory a block; None where nobody tells.
    registers: int | None = None
    spilled: int | None = None
    shared_memory: int | None = None
    #: Estimated share of the multiprocessor's warps, 0 to 1.
    occupancy: float | None = None
    #: Blocks of a launch for each multiprocessor; below 1 a part of the device idles.
    blocks_per_sm: float | None = None
    #: Whether a library (cuBLAS, cuDNN, ATen) owns it, not the candidate.
    library: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Where a correct kernel's time goes."""

    #: The longest first.
    launches: tuple[Launch, ...] = ()
    #: Effective GB/s and TFLOP/s: the problem's own bytes and operations over the kernel's time.
    gigabytes_per_second: float | None = None
    teraflops: float | None = None
    #: The roofline's time over the kernel's, 0 to 1.
    roofline_share: float | None = None
    #: Readings of hardware counters by name, in percent unless the name says otherwise; empty where not readable.
    counters: Mapping[str, float] = field(default_factory=dict)
    #: One line: what most likely limits it.
    bottleneck: str = ""


#: Precision of a task -> the precision class whose roofline applies.
_TASK_CLASS = {"fp32": "fp32", "tf32": "tf32", "fp16": "half", "bf16": "half"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemCard:
    """What the judge found out about a problem before it judged any kernel, on one device at one precision."""

    #: Problem id, device fingerprint, precision.
    problem: str
    device: str
    precision: str
    #: Flag -> the reason in one sentence, e.g. {"degenerate": "an output of zeros passes: …"}. Flags: "degenerate",
    #: "low-signal", "launch-bound", "random", "nondeterministic", "dead-code", "reducible", "in-place", "not-finite".
    flags: Mapping[str, str] = field(default_factory=dict)
    #: Bytes of all inputs, of the weights, and of the outputs; floating-point operations of the reference.
    input_bytes: int = 0
    weight_bytes: int = 0
    output_bytes: int = 0
    flops: int = 0
    #: Milliseconds of the eager reference, warm.
    eager_ms: float = 0.0
    #: Milliseconds in which all of these bytes are moved once; where `roofline_ms` is more, arithmetic bounds it.
    memory_ms: float = 0.0
    #: Precision class -> milliseconds at the roofline: everything read and written once, all operations at peak.
    roofline_ms: Mapping[str, float] = field(default_factory=dict)
    #: Precision class -> milliseconds below which no honest kernel can be (outputs written, irreducible operations).
    floor_ms: Mapping[str, float] = field(default_factory=dict)

    @property
    def degenerate(self) -> bool:
        """Whether an answer that ignores the input would pass."""
        return "degenerate" in self.flags

    @property
    def task_roofline_ms(self) -> float:
        """Milliseconds at the roofline of the precision that the task asks for; 0 when it was not computed."""
        return self.roofline_ms.get(_TASK_CLASS[self.precision], 0.0)

    @property
    def bound_by(self) -> str:
        """What limits the roofline at the task's precision: ``memory`` or ``arithmetic``."""
        return "arithmetic" if self.task_roofline_ms > self.memory_ms * 1.001 else "memory"


class Part:
    """A part of a record. Its fields are columns and JSON fields of the record itself (`archive.parts`)."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy(Part):
    """How far the outputs were from the fp64 truth over the trials; every field is None when not compared."""

    #: The class that the measured error falls in: "fp64", "fp32", "tf32", "half".
    precision_class: str | None = None
    #: Worst centred relative error.
    error: float | None = None
    #: Worst local error: over a run of 256 consecutive elements, against local and global spread.
    worst_tile: float | None = None
    #: The reference's own error, measured the same way as `error`.
    reference_error: float | None = None
    #: KernelBench v0.1's verdict (allclose, 1e-4 fp32, 1e-2 half) beside ours.
    allclose: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing(Part):
    """How fast the kernel is, from paired rounds; every field is None unless the kernel is CORRECT."""

    #: Median milliseconds of the kernel, and of the eager reference in the same rounds.
    time_ms: float | None = None
    reference_ms: float | None = None
    #: Reference time over kernel time, with its 95 % interval.
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    #: Against the eager reference, beyond the noise between processes.
    comparison: Comparison | None = None
    #: Speedup over the fastest baseline, and which that is ("eager", "compile", "max-autotune", "graph"); None also
    #: where the baselines were not measured.
    speedup_best: float | None = None
    best_baseline: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled(Part):
    """What the compilers made of the kernel."""

    #: What its compiled code shows; None where the code could not be disassembled.
    traits: tuple[Trait, ...] | None = None
    #: Hash of all that it runs, compiled code as machine code (`evaluators.builds.code`); "" where that is not known.
    binary_hash: str = ""
    #: Id of the kernel of the same `binary_hash` whose verdict and times these are; None for a kernel judged itself.
    identical_to: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution(Part):
    """When and where the kernel was judged, and how long that took."""

    #: How the worker was confined, e.g. "landlock 7, seccomp, limits".
    sandbox: str = ""
    #: Which device it was, among several of one fingerprint, e.g. "node7/cuda:1"; "" when not reported.
    device_instance: str = ""
    #: Start, in seconds since 1970; 0 in archives of old, which did not record it.
    started_at: float = 0.0
    #: Seconds in all, and of them spent building and importing the kernel.
    seconds: float = 0.0
    build_seconds: float = 0.0
    #: Seconds by phase, in order, e.g. "worker", "build", "device wait", "trials", "timing".
    phases: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What the judge found about one kernel on one problem, on one device, at one precision."""

    #: Kernel id.
    kernel: str
    #: Problem id.
    problem: str
    #: Device fingerprint (`evaluators.device.devices`); results of different devices are never ranked together.
    device: str
    #: The precision that the task asks for: "fp32", "tf32", "fp16" or "bf16".
    precision: str
    verdict: Verdict
    #: What a person or a model should know about it; "" for a correct kernel with nothing to say.
    message: str = ""
    #: Facts for filters: lint tags, "clearly-slow" (timing was cut short), "prepacked-weights", …
    tags: tuple[str, ...] = ()
    accuracy: Accuracy = Accuracy()
    timing: Timing = Timing()
    compiled: Compiled = Compiled()
    execution: Execution = Execution()
    #: Where the time goes; None unless CORRECT and profiled.
    profile: Profile | None = None
    #: Every timed block; empty unless CORRECT.
    blocks: tuple[Measurement, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """A fresh measurement of a kernel that would be champion: new processes, new inputs, beside its rival.

    Only such a number is published: the best of many evaluations is partly luck.
    """

    #: The run it belongs to and the generation after which it was made.
    run: str
    generation: int
    #: "challenge" of a champion, or "final" of the run's best.
    purpose: str
    #: Kernel id, and its rival's; None when there was no champion yet (then the reference is the rival).
    kernel: str
    rival: str | None
    #: The kernel against its rival.
    comparison: Comparison
    #: Rival's time over the kernel's, with its 95 % interval.
    ratio: float
    ratio_low: float
    ratio_high: float
    #: Reference time over the kernel's, with its 95 % interval, and both times in milliseconds.
    speedup: float
    speedup_low: float
    speedup_high: float
    time_ms: float
    reference_ms: float
    #: Every timed block.
    blocks: tuple[Measurement, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A kernel entered a niche of an island; insert-only, so the history of every niche is kept."""

    run: str
    island: int
    #: Niche key, e.g. "m1c2d1l0" (`islands.niches`).
    niche: str
    kernel: str
    generation: int
    #: "birth", "migration", or "restart" where the island began anew with it.
    via: str


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
