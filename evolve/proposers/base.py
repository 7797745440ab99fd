"""What a proposer receives, and what it returns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from kbevolve.archive.records import BirthState, Idea, Kernel, Operator, ProblemCard
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import Feedback
from kbevolve.evolve.state.attempts import Attempt, Failure
from kbevolve.evolve.state.memory import Memory
from kbevolve.evolve.state.transfer import TransferredKernel, TransferredKnowledge
from kbevolve.islands.island import Member
from kbevolve.islands.policy import FREE, Policy
from kbevolve.islands.stagnation import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTask:
    """The problem and the device of a run; the same for all its children."""

    problem: Problem
    #: "cpu" or "cuda".
    device_type: str
    #: One line for people and models, e.g. "NVIDIA H200, 132 SMs, 141 GB, sm_90, CUDA 13.0".
    device: str
    #: What the judge measured about the problem; None when it was not analysed.
    card: ProblemCard | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """What the run knew when the child's generation was created; nothing by default."""

    memory: Memory = field(default_factory=Memory)
    #: Recent failures on the island, newest first.
    failures: tuple[Failure, ...] = ()
    #: The fittest and the newest correct kernels of the run, some hundreds, in order of creation: for proposers that
    #: learn from numbers.
    history: tuple[Member, ...] = ()
    #: The newest kernels of the run that failed, for the same.
    failed: tuple[Kernel, ...] = ()
    #: All attempts of the island from a generation on, oldest first, with prompts and replies: for proposers that
    #: replay them.
    attempts: Callable[[int], Sequence[Attempt]] = lambda generation: ()
    #: Knowledge transferred from other problems, and the kernel of a similar one to show to this child (None: none).
    transfer: TransferredKnowledge = field(default_factory=TransferredKnowledge)
    transferred_kernel: TransferredKernel | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IslandState:
    """The island that the child belongs to."""

    number: int = 0
    #: What is particular to the kernels of this island.
    policy: Policy = FREE
    #: How the run currently reacts to its stagnation.
    stage: Stage = Stage.SEARCHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """Everything a proposer may know about the child that it has to propose."""

    task: KernelTask
    #: Id of the attempt, e.g. "g3/i1/s0"; "" outside a run.
    child: str = ""
    operator: Operator
    #: Main parent first. For REPAIR the failed child's own parents.
    parents: tuple[Member, ...]
    #: Kernels to learn from, the first one most: a champion of another island, elites of other niches.
    inspirations: tuple[Member, ...] = ()
    #: The failed child to repair; None unless the operator is REPAIR.
    repair: Failure | None = None
    #: The idea to carry out; None lets the proposer choose.
    idea: Idea | None = None
    learnt: Learnt = field(default_factory=Learnt)
    island: IslandState = field(default_factory=IslandState)
    #: What a prompt may show of a kernel beside its source: results ("execution"), where its time goes ("profiler").
    feedback: frozenset[Feedback] = frozenset({"execution", "profiler"})
    #: Calls a function with the ideas of other children in flight, and returns the idea that it chooses. It waits until
    #: those that come before this child have chosen. Thread-safe.
    choose_in_turn: Callable[[Callable[[tuple[Idea, ...]], Idea]], Idea] = lambda choice: choice(())
    #: Whether this run already has a kernel of this id; such a child is not worth proposing. Thread-safe.
    known: Callable[[str], bool]
    #: The only source of randomness; seeded by run, island, generation and slot.
    rng: Random


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A proposed child. Without a kernel, `state` says why there is none."""

    state: BirthState
    kernel: Kernel | None = None
    idea: Idea | None = None
    #: Kernel ids of the parents that were really used, main parent first; None: those of the brief.
    parents: tuple[str, ...] | None = None
    #: One line: what changed against the parent, or why there is no kernel.
    note: str = ""
    prompt: str = ""
    reply: str = ""
    model: str = ""
    #: Name that the settings give to the model, where they name several; else "".
    model_alias: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Proposer(Protocol):
    """Writes one child for a brief.

    A useless answer is a `Proposal` without kernel. `ProposerError` means that the proposer cannot work at all
    (endpoint unreachable after all retries, key refused); the search then stops and can be resumed.
    """

    def propose(self, brief: Brief) -> Proposal:
        """Write one child."""
