"""A search without a GPU: an evaluator and kernels whose speeds are a known function of their tunables."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kbevolve.archive.records import Evaluation, Kernel, Operator, Run, Verdict
from kbevolve.archive.store import Archive
from kbevolve.configs.problem import Problem, parse_problem
from kbevolve.configs.settings import Settings
from kbevolve.evolve.brief import Brief, Proposal, Proposer
from kbevolve.evolve.events import Event
from kbevolve.evolve.search import Search
from kbevolve.evolve.starting import StartingKernel
from kbevolve.evolve.tunables import values_of
from kbevolve.evolve.tuner import TunablesProposer

DEVICE = "double"

PROBLEM_TEXT = '''"""A problem that nobody runs."""


class Model: ...


def get_inputs(): ...


def get_init_inputs(): ...
'''

KERNEL_TEXT = """UNROLL = 1  # tune: 1, 2, 4, 8
TILE = 8  # tune: 8, 16, 32, 64
PACK = 0  # tune: 0, 1
WRONG = 0  # tune: 0, 1


class ModelNew: ...
"""


def problem() -> Problem:
    return parse_problem(PROBLEM_TEXT, name="L1/double", path=Path("double.py"))


def kernel(**values: int) -> Kernel:
    text = KERNEL_TEXT
    for name, value in values.items():
        default = {"UNROLL": 1, "TILE": 8, "PACK": 0, "WRONG": 0}[name]
        text = text.replace(f"{name} = {default} ", f"{name} = {value} ")
    return Kernel.from_source(text)


def speed_of(values: Mapping[str, str]) -> float:
    """Known landscape: UNROLL helps by its logarithm, TILE is best at 32, PACK helps big tiles only."""
    tile = int(values.get("TILE", 8))
    gain = 1.0 + 0.3 * int(values.get("UNROLL", 1)).bit_length() - 0.02 * abs(tile - 32)
    return gain * (1.5 if values.get("PACK") == "1" and tile >= 32 else 1.0)


class KnownEvaluator:
    """Implements `Evaluator` by `speed_of`; counts how often each kernel was asked about."""

    def __init__(self, interrupt_at: int | None = None) -> None:
        self.asked: Counter[str] = Counter()
        self.interrupt_at = interrupt_at

    def evaluate(self, problem: Problem, kernel: Kernel) -> Evaluation:
        if self.interrupt_at is not None and self.asked.total() >= self.interrupt_at:
            raise KeyboardInterrupt
        self.asked[kernel.id] += 1
        values = values_of(kernel.source)
        facts = {"kernel": kernel.id, "problem": problem.id, "device": DEVICE, "precision": "fp32"}
        if values.get("WRONG") == "1" or "broken" in kernel.source:
            return Evaluation(**facts, verdict=Verdict.WRONG, message="wrong by 3")
        speed = speed_of(values)
        return Evaluation(
            **facts,
            verdict=Verdict.CORRECT,
            time_ms=10 / speed,
            reference_ms=10.0,
            speedup=speed,
            speedup_low=speed * 0.99,
            speedup_high=speed * 1.01,
        )


class ScriptedProposer:
    """Implements `Proposer`: answers with what a function makes of the brief, and keeps the briefs."""

    def __init__(self, answer: Callable[[Brief], Proposal]) -> None:
        self.answer = answer
        self.briefs: list[Brief] = []

    def propose(self, brief: Brief) -> Proposal:
        self.briefs.append(brief)
        return self.answer(brief)


def settings(**search: object) -> Settings:
    return Settings.from_tree({"search": {"generations": 8, "islands": 2, "migration_every": 3, "seed": 7, **search}})


def open_run(archive: Archive, chosen: Settings, run_id: str = "double-1") -> Run:
    archive.add_problem(problem())
    run = Run(
        id=run_id,
        problem_name="L1/double",
        problem=problem().id,
        device=DEVICE,
        seed=chosen.search.seed,
        settings=chosen.model_dump_json(),
    )
    archive.add_run(run)
    return run


def search(
    archive: Archive,
    run: Run,
    chosen: Settings,
    evaluator: KnownEvaluator,
    *,
    proposers: Mapping[Operator, Proposer] | None = None,
    starts: Sequence[Kernel] | None = None,
    observer: Callable[[Event], None] = lambda event: None,
) -> Search:
    tuner = TunablesProposer()
    hand = [StartingKernel(kernel=start, note="seed") for start in (starts if starts is not None else [kernel()])]
    return Search(
        archive=archive,
        run=run,
        problem=problem(),
        device_type="cpu",
        device="a double",
        settings=chosen,
        proposers=proposers or {Operator.TUNE: tuner, Operator.CROSS: tuner},
        evaluator=evaluator,
        starts=[hand] * chosen.search.islands,
        observer=observer,
    )
