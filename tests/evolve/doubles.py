"""A search without a GPU: an evaluator and kernels whose speeds are a known function of their tunables."""

import sys
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, fields, replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from kbevolve.archive.parts import changed, grouped
from kbevolve.archive.records import Evaluation, Idea, Kernel, Launch, Operator, ProblemCard, Profile, Run, Verdict
from kbevolve.archive.store import Archive
from kbevolve.configs.problem import Problem, parse_problem
from kbevolve.configs.settings import EvaluationSettings, Settings
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.timing.baselines import Baseline
from kbevolve.evaluators.timing.contest import Contest
from kbevolve.evolve.llm.client import Message, Reply
from kbevolve.evolve.proposers.base import Brief, IslandState, KernelTask, Learnt, Proposal, Proposer
from kbevolve.evolve.proposers.seeds.seeds import GeneratedStarts, StartingKernel
from kbevolve.evolve.proposers.tuning.proposer import TunablesProposer
from kbevolve.evolve.proposers.tuning.tunables import values_of
from kbevolve.evolve.search.events import Observer
from kbevolve.evolve.search.search import Search
from kbevolve.evolve.state.context import RunContext
from kbevolve.evolve.state.knowledge import Gain, IdeaOutcome
from kbevolve.evolve.state.memory import Memory
from kbevolve.evolve.state.normalise import folded
from kbevolve.islands.island import Member
from tests.evolve.loopback import Request

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
    """Implements `Evaluator` by `speed_of`; counts how often each kernel was asked about.

    `luck` is what an evaluation adds to the speed of a kernel (by id), as a factor.
    """

    def __init__(self, interrupt_at: int | None = None, luck: Mapping[str, float] | None = None) -> None:
        self.asked: Counter[str] = Counter()
        self.interrupt_at = interrupt_at
        self.luck = luck or {}

    def evaluate(self, problem: Problem, kernel: Kernel) -> Evaluation:
        if self.interrupt_at is not None and self.asked.total() >= self.interrupt_at:
            raise KeyboardInterrupt
        self.asked[kernel.id] += 1
        values = values_of(kernel.source)
        facts = {"kernel": kernel.id, "problem": problem.id, "device": DEVICE, "precision": "fp32"}
        if values.get("WRONG") == "1" or "broken" in kernel.source:
            return grouped(Evaluation, **facts, verdict=Verdict.WRONG, message="wrong by 3")
        speed = speed_of(values) * self.luck.get(kernel.id, 1.0)
        return grouped(
            Evaluation,
            **facts,
            verdict=Verdict.CORRECT,
            time_ms=10 / speed,
            reference_ms=10.0,
            speedup=speed,
            speedup_low=speed * 0.99,
            speedup_high=speed * 1.01,
        )


class KnownConfirmer:
    """Implements `Confirmer` by `speed_of`, without luck; remembers who met whom.

    The kernels of `failing` (by id) do not pass a second time.
    """

    def __init__(self, *, failing: Collection[str] = (), interrupt_at: int | None = None) -> None:
        self.met: list[tuple[str, ...]] = []
        self.failing = failing
        self.interrupt_at = interrupt_at

    def compete(self, problem: Problem, kernels: Sequence[Kernel], *, rounds: int) -> Contest:
        if self.interrupt_at is not None and len(self.met) >= self.interrupt_at:
            raise KeyboardInterrupt
        self.met.append(tuple(kernel.id for kernel in kernels))
        failed = {
            kernel.id: changed(
                KnownEvaluator().evaluate(problem, kernel), verdict=Verdict.CRASHED, message="not again",
                time_ms=None, reference_ms=None, speedup=None, speedup_low=None, speedup_high=None,
            )
            for kernel in kernels
            if kernel.id in self.failing
        }  # fmt: skip
        times = {
            kernel.id: ((10 / speed_of(values_of(kernel.source)),) * 2,) * rounds
            for kernel in kernels
            if kernel.id not in failed
        }
        return Contest(reference=((10.0, 10.0),) * rounds, times=times, failed=failed, tie=0.01)


class KnownJudge(KnownEvaluator, KnownConfirmer):
    """The whole `Judge` as commands use it: evaluates, holds contests, knows a card and baselines."""

    def __init__(self, *, flags: Mapping[str, str] | None = None, **found: object) -> None:
        KnownEvaluator.__init__(self)
        KnownConfirmer.__init__(self)
        self.flags = dict(flags or {})
        #: Fields of every evaluation that are not as `KnownEvaluator` has them.
        self.found = found
        self.measured_baselines = False
        self.closed = False
        self.settings = EvaluationSettings()
        self.fingerprint = DEVICE
        self.width = 1

    def replace_judge(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Be the judge that commands make; the real one is not even imported."""
        monkeypatch.setitem(
            sys.modules, "kbevolve.evaluators.judging.judge", SimpleNamespace(Judge=self, width_for=width_for)
        )

    def __call__(
        self, device: Device, settings: EvaluationSettings, *, width: int = 1, builders: int = 0, plain: bool = False,
        shell_of: object = None,
    ) -> "KnownJudge":  # fmt: skip
        self.fingerprint, self.settings, self.width = device.fingerprint, settings, width
        return self

    def __enter__(self) -> "KnownJudge":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.closed = True

    def evaluate(self, problem: Problem, kernel: Kernel) -> Evaluation:
        found = changed(
            super().evaluate(problem, kernel), device=self.fingerprint, phases={"prepare": 0.1, "build": 0.2}
        )
        if self.measured_baselines and found.timing.speedup:
            found = changed(found, speedup_best=found.timing.speedup / 2, best_baseline="compile")
        return changed(found, **self.found)

    def compete(self, problem: Problem, kernels: Sequence[Kernel], *, rounds: int) -> Contest:
        contest = super().compete(problem, kernels, rounds=rounds)
        failed = {name: replace(found, device=self.fingerprint) for name, found in contest.failed.items()}
        return replace(contest, failed=failed)

    def card(self, problem: Problem) -> ProblemCard:
        return ProblemCard(
            problem=problem.id, device=self.fingerprint, precision=self.settings.precision, flags=self.flags
        )

    def baselines(self, problem: Problem) -> tuple[Baseline, ...]:
        self.measured_baselines = True
        return (
            Baseline(name="compile", speedup=2.0, low=1.9, high=2.1),
            Baseline(name="graph", failure="no graphs here"),
        )


def width_for(device: Device, asked: int = 0) -> int:
    """As the judge's, of a device with one core."""
    return asked or 1


def brief_of(operator: Operator, *parents: Member, seed: int = 0, **facts: Any) -> Brief:
    """A brief; `facts` are fields of it, or of its task, what was learnt, and its island."""
    parts: dict[str, Any] = {}
    for name, kind in (("task", KernelTask), ("learnt", Learnt), ("island", IslandState)):
        own = {field.name: facts.pop(field.name) for field in fields(kind) if field.name in facts}
        if name == "task":
            own = {"problem": problem(), "device_type": "cpu", "device": "a double"} | own
        parts[name] = kind(**own)
    plain: dict[str, Any] = {"parents": parents, "known": lambda _: False, "rng": Random(seed)}
    return Brief(operator=operator, **plain | parts | facts)


def rated(kernel: Kernel, speedup: float, launches: Sequence[Launch] = ()) -> Member:
    """A correct kernel of this speed, with a profile of these launches if there are any."""
    evaluation = grouped(
        Evaluation,
        kernel=kernel.id, problem="p", device=DEVICE, precision="fp32", verdict=Verdict.CORRECT,
        speedup=speedup, speedup_low=speedup, speedup_high=speedup,
        profile=Profile(launches=tuple(launches)) if launches else None,
    )  # fmt: skip
    return Member(kernel=kernel, evaluation=evaluation, niche="m0c0d0l0")


class ScriptedModel:
    """Implements `LanguageModel`: queued answers, else what a function makes of the request; keeps the requests."""

    def __init__(self, otherwise: Callable[[Request], str] | None = None) -> None:
        self.requests: list[Request] = []
        self.closed = False
        self._otherwise = otherwise
        self._replies: deque[Reply | Exception] = deque()

    def say(self, text: str | None, *, finish: str = "stop") -> None:
        truncated = finish == "length"
        reply = Reply(text=text or "", model="m-1", prompt_tokens=100, completion_tokens=20, truncated=truncated)
        self._replies.append(reply)

    def fail(self, failure: Exception | Reply) -> None:
        self._replies.append(failure)

    def complete(self, system: str, messages: Sequence[Message], *, child: str = "") -> Reply:
        turns = [{"role": "system", "content": system}] + [asdict(message) for message in messages]
        request = Request(path="", headers={}, body={"messages": turns})
        self.requests.append(request)
        if not self._replies and self._otherwise is not None:
            return Reply(text=self._otherwise(request), model="m-1")
        reply = self._replies.popleft()
        if isinstance(reply, Exception):
            raise reply
        return reply

    def close(self) -> None:
        self.closed = True


def tried(*ideas: tuple[Idea, float | None]) -> Memory:
    """A memory of ideas that were tried once, with the gain of each; None for an idea whose child failed."""
    outcomes = [
        IdeaOutcome(idea=idea, children=1, births=1, worked=1, gain=Gain(factor=gain, low=gain, high=gain))
        if gain
        else IdeaOutcome(idea=idea, children=1, births=1)
        for idea, gain in ideas
    ]
    return Memory(outcomes={folded(one.idea.title): one for one in outcomes})


class ScriptedProposer:
    """Implements `Proposer`: answers with what a function makes of the brief, and keeps the briefs."""

    def __init__(self, answer: Callable[[Brief], Proposal]) -> None:
        self.answer = answer
        self.briefs: list[Brief] = []

    def propose(self, brief: Brief) -> Proposal:
        self.briefs.append(brief)
        return self.answer(brief)


def settings(*, evaluation: Mapping[str, object] | None = None, **search: object) -> Settings:
    small = {"generations": 8, "islands": 2, "migration_every": 3, "seed": 7, "lookahead": 0}
    return Settings.from_tree({"search": {**small, **search}, "evaluation": dict(evaluation or {})})


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


def replace_starts(monkeypatch: pytest.MonkeyPatch, *starts: StartingKernel) -> None:
    """Let a session start from these kernels; torch.compile generates none."""
    monkeypatch.setattr("kbevolve.evolve.runs.session.new_starts", lambda *_: starts)
    monkeypatch.setattr("kbevolve.evolve.runs.session.inductor_starts", lambda *_: nullcontext())


def context_of(archive: Archive, run: Run, device: Device, chosen: Settings) -> RunContext:
    return RunContext(archive=archive, run=run, problem=problem(), device=device, settings=chosen)


def search(
    archive: Archive,
    run: Run,
    chosen: Settings,
    evaluator: KnownEvaluator,
    *,
    proposers: Mapping[Operator, Proposer] | None = None,
    starts: Sequence[Kernel] | None = None,
    generated: GeneratedStarts | None = None,
    confirmer: KnownConfirmer | None = None,
    width: int = 1,
    observer: Observer | None = None,
    elapsed: Callable[[], float] = lambda: 0.0,
) -> Search:
    tuner = TunablesProposer()
    hand = [StartingKernel(kernel=start, note="seed") for start in (starts if starts is not None else [kernel()])]
    device = Device(type="cpu", index=0, fingerprint=DEVICE, description="a double")
    return Search(
        context_of(archive, run, device, chosen),
        proposers=proposers or {Operator.TUNE: tuner, Operator.CROSS: tuner},
        evaluator=evaluator,
        starts=[hand] * chosen.search.islands,
        generated=generated,
        confirmer=confirmer,
        width=width,
        observer=observer,
        elapsed=elapsed,
    )
