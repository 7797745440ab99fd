"""Records of kernels: what a kernel and an idea are, how each kernel came to be, and which niches it entered."""

from dataclasses import dataclass
from enum import StrEnum

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
