"""A small realistic archive: one finished run with every verdict, operator and state."""

import json
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from kbevolve.archive.parts import changed, grouped
from kbevolve.archive.records import (
    Birth,
    BirthState,
    Comparison,
    Confirmation,
    Evaluation,
    Idea,
    Kernel,
    Measurement,
    Operator,
    Placement,
    ProblemCard,
    Run,
    StopReason,
    Verdict,
)
from kbevolve.archive.store import Archive
from kbevolve.configs.problem import Problem, parse_problem

PROBLEM = '''"""C = A @ B for square matrices."""

import torch
from torch import nn

N = 4096
CPU_SIZES = {"N": 512}


class Model(nn.Module):
    def forward(self, A, B):
        return A @ B


def get_inputs():
    return [torch.randn(N, N), torch.randn(N, N)]


def get_init_inputs():
    return []
'''


KERNEL = '''"""Matrix product, blocked: each block of C is summed while its panels of A and B are in the cache."""

import torch
from torch import nn

BLOCK = {block}  # tune: 16, 32, 64, 128
UNROLL = {unroll}  # tune: 1, 2, 4, 8


class ModelNew(nn.Module):
    def forward(self, A, B):
        out = torch.zeros(A.shape[0], B.shape[1])
        for start in range(0, A.shape[1], BLOCK * UNROLL):
            out += A[:, start : start + BLOCK * UNROLL] @ B[start : start + BLOCK * UNROLL]
        return out
'''


IDEAS = (
    Idea(
        title="Keep a block of C in registers",
        mechanism="Each element of A and B is loaded once a block, so that memory traffic falls by the block's edge.",
        technique="register tiling",
        bottleneck="memory bandwidth",
        expected_gain=1.8,
        proposed_by="test-model",
    ),
    Idea(title="Unroll the inner loop", mechanism="More independent sums in flight.", technique="unrolling"),
)


FAILURES = (
    (
        Verdict.BUILD_FAILED,
        "error: expected ';' before '}' token\n   41 |     acc += a[k] * b[k]\n      |                       ^",
    ),
    (Verdict.CRASHED, "signal 11 (segmentation fault) in the first call"),
    (Verdict.TIMED_OUT, "no answer after 30.0 s of its first call"),
    (Verdict.WRONG, "error 3.1e-01 against the fp64 truth, 1.2e-05 is accepted for fp32; row 17 is the worst"),
    (Verdict.REFUSED, "no class ModelNew at the top level"),
)


@dataclass(frozen=True)
class Sample:
    """Where the archive is, and what is in it."""

    path: Path
    run: Run
    problem: Problem
    #: Id of the kernel with the highest lower end of its speedup's interval.
    best: str
    #: Births of the run, in order.
    births: tuple[Birth, ...]
    evaluations: dict[str, Evaluation]


def fill(
    archive: Archive,
    *,
    run_id: str = "matmul-20261121-083012-3f2a",
    problem_name: str = "L1/matmul",
    device: str = "cpu/Test Processor avx2/2 threads/torch 2.13.0",
    generations: int = 8,
    islands: int = 3,
    seed: int = 0,
    stop: StopReason | None = StopReason.GENERATIONS,
    confirmed: bool = False,
) -> tuple[Run, Problem, list[Birth], dict[str, Evaluation]]:
    """Write one run: kernels get faster with luck, every verdict, operator and state of birth occurs.

    With `confirmed` the first starting kernel was champion, and the fittest kernel took the title in the final.
    """
    rng = Random(seed)
    problem = parse_problem(PROBLEM, name=problem_name, path=Path("problems/matmul.py"))
    run = Run(
        id=run_id,
        problem_name=problem_name,
        problem=problem.id,
        device=device,
        seed=seed,
        settings=json.dumps({"device": "cpu", "evaluation": {"precision": "fp32"}}),
        versions={"kbevolve": "0.1.0", "torch": "2.13.0"},
        created="2026-11-21T08:30:12+00:00",
    )
    archive.add_problem(problem)
    archive.add_run(run)
    births: list[Birth] = []
    evaluations: dict[str, Evaluation] = {}
    elites: dict[int, list[str]] = {island: [] for island in range(islands)}

    def evaluate(kernel: Kernel, verdict: Verdict, message: str, speedup: float) -> None:
        if kernel.id in evaluations:
            return
        evaluation = grouped(
            Evaluation,
            kernel=kernel.id,
            problem=problem.id,
            device=device,
            precision="fp32",
            verdict=verdict,
            message=message,
            build_seconds=rng.uniform(0.2, 0.4),
            seconds=rng.uniform(1, 2),
        )
        if verdict is Verdict.CORRECT:
            times = [2.0 / speedup * rng.uniform(0.99, 1.02) for _ in range(4)]
            evaluation = changed(
                evaluation,
                precision_class="fp32",
                error=4.9e-6,
                reference_error=5.1e-6,
                allclose=True,
                time_ms=2.0 / speedup,
                reference_ms=2.0,
                speedup=speedup,
                speedup_low=speedup * 0.97,
                speedup_high=speedup * 1.03,
                tags=("clearly-slow",) if speedup < 0.2 else (),
                blocks=(
                    Measurement(role="child", round=0, times_ms=tuple(times)),
                    Measurement(role="reference", round=0, times_ms=(2.0, 2.01, 1.99, 2.0)),
                ),
            )
        archive.add_evaluation(evaluation)
        evaluations[kernel.id] = evaluation

    def record(birth: Birth, kernel: Kernel | None, idea: Idea | None = None) -> None:
        archive.add_birth(birth, kernel=kernel, idea=idea)
        births.append(birth)

    def place(island: int, kernel: Kernel, generation: int, via: str = "birth") -> None:
        archive.add_placement(
            Placement(run=run.id, island=island, niche="m1c0d1l0", kernel=kernel.id, generation=generation, via=via)
        )
        elites[island].append(kernel.id)

    def source(block: int, unroll: int) -> Kernel:
        return Kernel.from_source(KERNEL.format(block=block, unroll=unroll + 100 * seed))

    for island in range(islands):
        kernel = source(1, 1 + island)
        record(
            Birth(
                run=run.id, generation=0, island=island, slot=0, operator=Operator.SEED, state=BirthState.CREATED,
                kernel=kernel.id, note=f"naive {1 + island}",
            ),
            kernel,
        )  # fmt: skip
        evaluate(kernel, Verdict.CORRECT, "", 0.15 + 0.05 * island)
        place(island, kernel, 0)
    operators = (Operator.TUNE, Operator.MUTATE, Operator.REWRITE, Operator.CROSS)
    count = 0
    for generation in range(1, generations + 1):
        for island in range(islands):
            count += 1
            operator = operators[count % len(operators)]
            parent = elites[island][-1]
            other = elites[(island + 1) % islands][-1]
            idea = IDEAS[count % 2] if operator in (Operator.MUTATE, Operator.REWRITE) else None
            asked = idea is not None or operator is Operator.CROSS
            kernel = source(8 * (1 + count), 1 + count % 4) if count % 11 else None
            birth = Birth(
                run=run.id,
                generation=generation,
                island=island,
                slot=0,
                operator=operator,
                state=BirthState.CREATED if kernel else BirthState.NO_CODE,
                parents=(parent, other) if operator is Operator.CROSS and other != parent else (parent,),
                kernel=kernel.id if kernel else None,
                idea=idea.id if idea else None,
                note=f"BLOCK {8 * count} -> {8 * (1 + count)}" if kernel else "the answer holds no code block",
                prompt=f"Make this faster.\n{KERNEL}" if asked else "",
                reply=f"Reply {count}: use a larger block." if asked else "",
                model="test-model" if asked else "",
                prompt_tokens=1200 if asked else 0,
                completion_tokens=300 + count if asked else 0,
                seconds=rng.uniform(0.1, 3.0),
            )
            record(birth, kernel, idea)
            if kernel is None:
                continue
            if count % 4 == 0:
                verdict, message = FAILURES[(count // 4 - 1) % len(FAILURES)]
                evaluate(kernel, verdict, message, 0.0)
                repaired = source(8 * (1 + count), 5 + count % 4)
                record(
                    Birth(
                        run=run.id, generation=generation, island=island, slot=1, operator=Operator.REPAIR,
                        state=BirthState.CREATED, parents=(kernel.id, parent), kernel=repaired.id, note="repaired",
                        prompt=message, reply="Sorry.", model="test-model", prompt_tokens=90, completion_tokens=10,
                    ),
                    repaired,
                )  # fmt: skip
                kernel = repaired
            before = evaluations[parent].timing.speedup or 0.1
            # Luck, and ever less room towards a roofline at 6 times eager.
            speedup = max(0.1, before + before * (1 - before / 6) * rng.gauss(0.1, 0.35))
            evaluate(kernel, Verdict.CORRECT, "", speedup)
            if speedup > before:
                place(island, kernel, generation)
    record(
        Birth(
            run=run.id, generation=generations, island=islands - 1, slot=9, operator=Operator.TUNE,
            state=BirthState.DUPLICATE, kernel=births[0].kernel, note="as before",
        ),
        None,
    )  # fmt: skip
    if confirmed:
        correct = [one for one in evaluations.values() if one.verdict is Verdict.CORRECT]
        best = max(correct, key=lambda one: one.timing.speedup_low or 0.0)
        first = births[0].kernel or ""
        archive.add_contest([confirmation(run.id, first, generation=0, speedup=1.05)])
        archive.add_contest([confirmation(run.id, first, generation=generations, purpose="final", speedup=1.04)])
        speedup = (best.timing.speedup or 0.0) * 0.98
        final = confirmation(run.id, best.kernel, generation=generations, purpose="final", rival=first, speedup=speedup)
        archive.add_contest([final])
        archive.add_card(
            ProblemCard(
                problem=problem.id, device=device, precision="fp32", flags={"launch-bound": "20 µs"}, eager_ms=0.02
            )
        )
    if stop is not None:
        archive.add_stop(run.id, stop)
    return run, problem, births, evaluations


def confirmation(run_id: str, kernel: str, **changes: Any) -> Confirmation:
    """A confirmation of a kernel that is twice as fast as its rival, or whatever is given."""
    speedup = changes.get("speedup", 2.0)
    facts: dict[str, Any] = {
        "run": run_id, "generation": 1, "purpose": "challenge", "kernel": kernel, "rival": None,
        "comparison": Comparison.FASTER, "ratio": 2.0, "ratio_low": 1.98, "ratio_high": 2.02, "speedup": speedup,
        "speedup_low": speedup * 0.99, "speedup_high": speedup * 1.01, "time_ms": 2.0 / speedup, "reference_ms": 2.0,
        "blocks": (
            Measurement(role="child", round=0, times_ms=(2.0 / speedup,)),
            Measurement(role="reference", round=0, times_ms=(2.0,)),
        ),
    }  # fmt: skip
    return Confirmation(**facts | changes)
