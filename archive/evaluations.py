"""Records of the judge: verdict, accuracy, timing and profile of one kernel, and contests of several."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from kbevolve.archive.parts import Part


class Verdict(IntEnum):
    """The judge's verdict, in the order of its stages."""

    REFUSED = 0  # not in the format, or breaks a rule
    BUILD_FAILED = 1  # it does not compile or import
    CRASHED = 2  # it raised, or its process died
    TIMED_OUT = 3  # it exceeded a time limit
    WRONG = 4  # an output is wrong
    CORRECT = 5  # correct in every trial, and timed

    @property
    def repairable(self) -> bool:
        """Whether a repair turn can help: the failure has a message, and the cause is not that the kernel is slow."""
        return self in (Verdict.REFUSED, Verdict.BUILD_FAILED, Verdict.CRASHED, Verdict.WRONG)


class Trait(StrEnum):
    """What the disassembled code of a kernel shows: evidence from the compiler, not from the source or a model."""

    VECTOR_ACCESS = "vector access"  # loads or stores of several elements a lane, or SIMD loads on a CPU
    SHARED_MEMORY = "shared memory"  # loads or stores of memory that a block shares
    ASYNC_COPY = "asynchronous copy"  # cp.async, bulk and tensor copies; prefetches on a CPU
    STREAMING = "streaming"  # accesses marked to be evicted first, or past the caches
    WARP_SHUFFLES = "warp shuffles"  # lanes that exchange registers
    PACKED_ARITHMETIC = "packed arithmetic"  # several numbers an instruction: half2 on a GPU, SIMD on a CPU
    MATRIX_UNITS = "matrix units"  # tensor cores, AMX
    ATOMICS = "atomics"  # read-modify-write of shared or global memory


class Comparison(StrEnum):
    """How a kernel's speed compares with another's, beyond what noise explains."""

    FASTER = "faster"
    TIE = "tie"
    SLOWER = "slower"


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

    #: Name as the profiler reports it, shortened.
    name: str
    #: Share of the call's device time, 0 to 1, of all these launches together.
    share: float
    #: Microseconds a launch, and launches a call.
    microseconds: float
    launches: float
    #: Registers a thread, spilled bytes a thread, bytes of shared memory a block; None when not reported.
    registers: int | None = None
    spilled: int | None = None
    shared_memory: int | None = None
    #: Estimated share of the multiprocessor's warps, 0 to 1.
    occupancy: float | None = None
    #: Blocks of a launch for each multiprocessor; below 1 a part of the device idles.
    blocks_per_sm: float | None = None
    #: Blocks of a launch, and threads of a block: launches of one kernel in two shapes are two entries.
    blocks: int | None = None
    threads: int | None = None
    #: Whether the kernel belongs to a library (cuBLAS, cuDNN, ATen), not to the candidate.
    library: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCost:
    """What it costs to launch a call, measured in the candidate's process: for information, never for a verdict.

    The speedup here is not the judge's: the kernel gets the same inputs in every call, and no output is checked.
    """

    #: Median milliseconds until a call returns to the host while the device is busy, of the kernel and of the eager
    #: reference. A call that waits for the device includes that wait.
    host_ms: float
    reference_host_ms: float
    #: Mean milliseconds of a call as KernelBench times it (`cuda_event`), of the kernel and of the eager reference, and
    #: the quotient. Its events begin on a device that is soon idle, so that slow launches are inside.
    kernelbench_ms: float
    kernelbench_reference_ms: float
    kernelbench_speedup: float
    #: Kernels, copies and fills that a call launches; None where the profiler saw none.
    launches: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Where a correct kernel's time goes."""

    #: The longest first.
    launches: tuple[Launch, ...] = ()
    #: Milliseconds that they took in a profiled call, where that was more than the call takes. Their microseconds are
    #: then scaled, so that the sum is the call's time.
    profiled_ms: float | None = None
    #: Effective GB/s and TFLOP/s: the problem's own bytes and operations over the kernel's time.
    gigabytes_per_second: float | None = None
    teraflops: float | None = None
    #: The roofline's time over the kernel's, 0 to 1.
    roofline_share: float | None = None
    #: Hardware counters by name, in percent unless the name says otherwise; empty where not readable.
    counters: Mapping[str, float] = field(default_factory=dict)
    #: One line: what most likely limits it.
    bottleneck: str = ""
    #: What it costs to launch a call; None on a CPU, which has no launches, and where it was not measured.
    launch_cost: LaunchCost | None = None


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

    @property
    def over_reference(self) -> float | None:
        """The error in multiples of the reference's own, or of a rounding in fp32 where that is more."""
        if self.error is None or self.reference_error is None:
            return None
        return self.error / max(self.reference_error, 2.0**-23)


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
    #: Hash of all that it runs, compiled code as machine code (`evaluators.judging.binary_dedup`); "" where unknown.
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
    """A fresh measurement of a challenger beside its rival: new processes, new inputs.

    Only such a speedup is published: the maximum of many noisy evaluations is biased upwards.
    """

    #: The run it belongs to and the generation after which it was made.
    run: str
    generation: int
    #: "challenge" of a champion, or "final" of the run's best.
    purpose: str
    #: Kernel id, and its rival's; None when there was no champion yet, or no memory for it beside the kernel (then the
    #: reference is the rival).
    kernel: str
    rival: str | None
    #: The kernel against its rival; where there was no memory for the champion, against its published speedup.
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
