"""The offline run's own choices on a landscape: operator and parents by rank, then the proposer of tunables."""

import math
from collections import deque
from collections.abc import Mapping
from functools import partial
from itertools import count
from pathlib import Path
from random import Random

from benchmarks.tuners.task import Spent, TuningTask
from kbevolve.archive.parts import grouped
from kbevolve.archive.records import Evaluation, Kernel, Operator, Verdict
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import Settings
from kbevolve.evolve.proposers.base import Brief, KernelTask, Learnt
from kbevolve.evolve.proposers.tuning.proposer import TunablesProposer
from kbevolve.evolve.proposers.tuning.tunables import values_of
from kbevolve.evolve.simulation.landscape import Program
from kbevolve.evolve.state.memory import Memory
from kbevolve.evolve.strategies.evolve import choose
from kbevolve.islands.island import Island, Member

OPERATORS = (Operator.TUNE, Operator.CROSS)
_PROBLEM = Problem(name="landscape", source="", path=Path("landscape.py"), cpu_sizes={}, summary="")


def our_search(task: TuningTask, *, lookahead: int = 0, learns_failures: bool = True) -> None:
    """One island, each child after the verdict on the last but `lookahead`. It knows which settings exist."""
    settings = Settings.from_tree({"budget": {"evaluations": task.budget}}).search
    island, history, failed, known = Island(index=0), list[Member](), list[Kernel](), set[str]()
    proposer = TunablesProposer(allows=lambda values: task.landscape.exists(_setting(task, values)))
    kernel = Kernel.from_source(_source(task, task.start))
    waiting: deque[Member | Kernel] = deque()
    for child in count():
        speed = task.measure(_setting(task, values_of(kernel.source)))
        known.add(kernel.id)
        waiting.append(kernel if speed is None else _member(kernel, math.exp(speed)))
        while len(waiting) > (lookahead if child else 0):
            if isinstance(done := waiting.popleft(), Member):
                history.append(done)
                island = island.with_member(done)
            elif learns_failures:
                failed.append(done)
        choice = choose(
            island,
            Memory(),
            settings=settings,
            window=0,
            operators=OPERATORS,
            rng=partial(_rng, task.seed, child),
        )
        assert choice is not None, "the start declares tunables"
        brief = Brief(
            task=KernelTask(problem=_PROBLEM, device_type="cuda", device=""),
            operator=choice.operator,
            parents=choice.parents,
            learnt=Learnt(history=tuple(history), failed=tuple(failed)),
            known=known.__contains__,
            rng=_rng(task.seed, child, "propose"),
        )
        proposal = proposer.propose(brief)
        if proposal.kernel is None:
            raise Spent
        kernel = proposal.kernel


def _rng(seed: int, child: int, purpose: str) -> Random:
    return Random(f"{seed}/{child}/{purpose}")


def _setting(task: TuningTask, values: Mapping[str, str]) -> Program:
    return tuple(int(values.get(gene.name, 0)) for gene in task.landscape.genes)


def _source(task: TuningTask, setting: Program) -> str:
    lines = [
        f"{gene.name} = {at}  # tune: {', '.join(map(str, range(gene.choices)))}\n"
        for gene, at in zip(task.landscape.genes, setting, strict=True)
        if gene.choices > 1
    ]
    return "".join(lines) + "class ModelNew: ...\n"


def _member(kernel: Kernel, speedup: float) -> Member:
    evaluation = grouped(
        Evaluation,
        kernel=kernel.id,
        problem="",
        device="",
        precision="fp32",
        verdict=Verdict.CORRECT,
        speedup=speedup,
        speedup_low=speedup,
        speedup_high=speedup,
    )
    return Member(kernel=kernel, evaluation=evaluation, niche="0")
