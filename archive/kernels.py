"""Records of kernels: what a kernel and an idea are, how each kernel came to be, and which niches it entered."""

from dataclasses import dataclass
from enum import StrEnum

from kbevolve.archive.identity import backend_of, digest, encodable, normalise


class Backend(StrEnum):
    """What a kernel is written in; a label, never an axis of diversity."""

    TORCH = "torch"
    CPP = "cpp"
    TRITON = "triton"  # and Gluon
    CUDA = "cuda"
    TILELANG = "tilelang"
    CUTE = "cute"  # the CuTe DSL of CUTLASS, in Python
    THUNDERKITTENS = "thunderkittens"  # CUDA C++ with its headers
    HIP = "hip"


class Operator(StrEnum):
    """How a child is made."""

    SEED = "seed"  # one of the starting kernels
    MUTATE = "mutate"  # one idea implemented on one parent as an edit
    REWRITE = "rewrite"  # one idea implemented as a whole new file
    CROSS = "cross"  # two parents combined
    TUNE = "tune"  # other values for the declared tunables, without a model
    REPAIR = "repair"  # a failed child and the message of its failure


class BirthState(StrEnum):
    """What the proposer delivered. The judge's result is the kernel's `Evaluation`."""

    CREATED = "created"  # a kernel that is new in this run
    DUPLICATE = "duplicate"  # a kernel that this run had already
    NEAR_DUPLICATE = (
        "near duplicate"  # nearly equal to a kernel that failed or was slow: not judged, proposed once more
    )
    NO_CODE = "no code"  # a reply without a usable kernel (prose, broken diff, cut short)
    EXHAUSTED = "exhausted"  # nothing new left to propose around these parents


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A kernel is identified by its source."""

    #: Hash of the normalised source, 16 hexadecimal digits.
    id: str
    #: What it is written in, read off the source.
    backend: Backend
    #: The whole ModelNew file.
    source: str

    @classmethod
    def from_source(cls, source: str) -> "Kernel":
        """The kernel of a source file. Comments decide neither its identity nor its backend."""
        source = encodable(source)  # as the archive keeps it, so that what it keeps gives its id
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
    #: Expected speedup over the parent as the proposer stated it, e.g. 1.3; None when not stated.
    expected_gain: float | None = None
    #: Model name, "playbook" or a person.
    proposed_by: str = ""

    @property
    def id(self) -> str:
        """Hash of title and mechanism, 16 hexadecimal digits."""
        return digest(f"{self.title}\n{self.mechanism}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Birth:
    """One attempt at a child, an edge of the lineage, recorded before it is judged: parents, operator, model, kernel.

    The command line calls it an attempt; it may have produced no kernel (`state`).
    """

    #: The run it belongs to.
    run: str
    #: 0 for the starting kernels.
    generation: int
    #: Index of the island it belongs to.
    island: int
    #: Position among this island's births of this generation: 0 the child, 1 its first repair, …
    slot: int
    operator: Operator
    state: BirthState
    #: Kernel ids, the main parent first; empty for starting kernels.
    parents: tuple[str, ...] = ()
    #: Kernel id, None without a kernel. For a duplicate: the kernel that it equals.
    kernel: str | None = None
    #: Kernel id of the proposed source, when that equals `kernel` except for comments, layout and names; else None.
    proposed_kernel: str | None = None
    #: Hash of the kernel's canonical form (`islands.source.canonical`); "" without a kernel, or when not computed.
    canonical_hash: str = ""
    #: Id of the idea it implements, None without one.
    idea: str | None = None
    #: One line for people: what changed, or why there is no kernel.
    note: str = ""
    #: Everything that was sent to the model, "" without a model.
    prompt: str = ""
    #: Everything that the model replied.
    reply: str = ""
    #: Model name as the endpoint reports it, "" without a model.
    model: str = ""
    #: The model's name in the settings, when they name several; else "".
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
class Placement:
    """A kernel entered a niche of an island; insert-only, so the history of every niche is kept."""

    run: str
    island: int
    #: Niche key, e.g. "m1c2d1l0" (`islands.niches`).
    niche: str
    kernel: str
    generation: int
    #: "birth", "migration", or "restart" where the island was restarted with it.
    via: str
