"""What a proposer is told, and what it gives back."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from kbevolve.archive.records import BirthState, Idea, Kernel, Operator, ProblemCard
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import Feedback
from kbevolve.evolve.state.attempts import Attempt, Failure
from kbevolve.evolve.state.knowledge import Memory
from kbevolve.evolve.state.transfer import Heirloom, Legacy
from kbevolve.islands.island import Member
from kbevolve.islands.policy import FREE, Policy
from kbevolve.islands.stagnation import Stage


def _no_attempts(generation: int) -> Sequence[Attempt]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """Everything a proposer may know about the child it is asked for."""

    problem: Problem
    #: Which birth of the run it is, e.g. "g3/i1/s0"; "" where nobody keeps count.
    child: str = ""
    #: "cpu" or "cuda".
    device_type: str
    #: One line for people and models, e.g. "NVIDIA H200, 132 SMs, 141 GB, sm_90, CUDA 13.0".
    device: str
    #: What the judge found out about the problem; None when nobody looked.
    card: ProblemCard | None = None
    operator: Operator
    #: Main parent first. For REPAIR the failed child's own parents.
    parents: tuple[Member, ...]
    #: Elites of other niches, to learn from.
    inspirations: tuple[Member, ...] = ()
    #: Recent failures on this island, newest first.
    failures: tuple[Failure, ...] = ()
    #: The child to repair; None unless the operator is REPAIR.
    repair: Failure | None = None
    #: Ideas that were tried lately in this run, with the best gain over the parent that came of each (None: none
    #: worked).
    tried: Mapping[Idea, float | None]
    #: What the run had learnt when the generation was bred.
    memory: Memory = field(default_factory=Memory)
    #: What other problems gave to the run, and the kernel of a similar one that this child is shown; None for none.
    legacy: Legacy = field(default_factory=Legacy)
    heirloom: Heirloom | None = None
    #: Where the child is born, what is particular to the kernels there, and what the run does about its stagnation.
    island: int = 0
    policy: Policy = FREE
    stage: Stage = Stage.SEARCHING
    #: The fittest and the newest correct kernels of this run with their evaluations, some hundreds, in the order of
    #: birth: for proposers that learn from numbers.
    history: tuple[Member, ...] = ()
    #: The idea to carry out; None leaves it to the proposer.
    idea: Idea | None = None
    #: What may be told of a kernel beside its source: how it fared ("execution"), where its time goes ("profiler").
    told: frozenset[Feedback] = frozenset({"execution", "profiler"})
    #: Everything that this island has borne from a generation on, the oldest first, with prompts and replies: for
    #: proposers that go through it again.
    attempts: Callable[[int], Sequence[Attempt]] = _no_attempts
    #: Whether this run had a kernel of this id already; such a child is not worth proposing. Any thread may ask.
    known: Callable[[str], bool]
    #: The only source of randomness; seeded by run, island, generation and slot.
    rng: Random


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What came of a brief. Without a kernel, `state` says why not."""

    state: BirthState
    kernel: Kernel | None = None
    idea: Idea | None = None
    #: The parents it really used, main parent first; None: those of the brief.
    parents: tuple[str, ...] | None = None
    #: One line: what changed against the parent, or why there is no kernel.
    note: str = ""
    prompt: str = ""
    reply: str = ""
    model: str = ""
    #: Name that the settings have for the model, where they name several; "" else.
    author: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Proposer(Protocol):
    """Writes one child for a brief.

    A useless answer is a `Proposal` without kernel; `ProposerError` means that the proposer cannot work
    at all (endpoint unreachable after all retries, key refused), and the search stops, resumable.
    """

    def propose(self, brief: Brief) -> Proposal:
        """Write one child."""
        ...
