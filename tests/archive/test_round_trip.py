"""What is written comes back exactly."""

import dataclasses
import math
from random import Random
from typing import Any

import pytest

from kbevolve.archive.parts import grouped
from kbevolve.archive.records import (
    Birth,
    BirthState,
    Comparison,
    Confirmation,
    Evaluation,
    Idea,
    Kernel,
    Launch,
    LaunchCost,
    Measurement,
    Operator,
    Placement,
    Profile,
    Run,
    Trait,
    Verdict,
)
from kbevolve.archive.store import Archive
from kbevolve.configs.problem import Problem
from tests.archive.conftest import make_run

#: Texts that databases, encodings and JSON stumble over.
NASTY = (
    "",
    "plain",
    "two\nlines\r\n",
    "naïve × 漢字 🚀",
    "'; drop table births; --",
    '{"json": [1]}',
    "\x00\x1f",
    "a" * 5000,
)


NUMBERS = (0.0, math.inf, 1e-300, 0.1, 1 / 3, 2.6805, 1e300)


def random_kernel(rng: Random) -> Kernel:
    return Kernel.from_source(f"x = {rng.random()!r}\ny = {rng.choice(NASTY)!r}\n")


def random_birth(rng: Random, run: Run, number: int, kernel: Kernel | None, idea: Idea | None) -> Birth:
    return Birth(
        run=run.id,
        generation=number,
        island=rng.randrange(4),
        slot=rng.randrange(3),
        operator=rng.choice(list(Operator)),
        state=rng.choice(list(BirthState)),
        parents=tuple(rng.choice(NASTY) for _ in range(rng.randrange(3))),
        kernel=kernel.id if kernel else None,
        idea=idea.id if idea else None,
        note=rng.choice(NASTY),
        prompt=rng.choice(NASTY),
        reply=rng.choice(NASTY),
        model=rng.choice(NASTY),
        prompt_tokens=rng.randrange(10**6),
        completion_tokens=rng.randrange(10**6),
        seconds=rng.choice(NUMBERS),
    )


def random_profile(rng: Random) -> Profile:
    return Profile(
        launches=tuple(
            Launch(
                name=rng.choice(NASTY), share=rng.random(), microseconds=rng.choice(NUMBERS), launches=1.5,
                registers=rng.choice((None, 255)), occupancy=rng.choice((None, 0.5)), library=rng.random() < 0.5,
                blocks=rng.choice((None, 1 << 40)),
            )
            for _ in range(rng.randrange(3))
        ),
        profiled_ms=rng.choice((None, 0.7)),
        roofline_share=rng.choice((None, 0.3)),
        counters={name: rng.choice(NUMBERS) for name in rng.sample(NASTY, 2)},
        bottleneck=rng.choice(NASTY),
        launch_cost=rng.choice((None, random_launch_cost(rng))),
    )  # fmt: skip


def random_launch_cost(rng: Random) -> LaunchCost:
    return LaunchCost(
        host_ms=rng.choice(NUMBERS),
        reference_host_ms=rng.choice(NUMBERS),
        kernelbench_ms=rng.choice(NUMBERS),
        kernelbench_reference_ms=rng.choice(NUMBERS),
        kernelbench_speedup=rng.choice(NUMBERS),
        launches=rng.choice((None, 7.0)),
    )


def random_confirmation(rng: Random, run: Run, kernel: str, rival: str | None, generation: int) -> Confirmation:
    ratios = {f"{name}{end}": rng.choice(NUMBERS) for name in ("ratio", "speedup") for end in ("", "_low", "_high")}
    return Confirmation(
        run=run.id,
        generation=generation,
        purpose=rng.choice(("challenge", "final")),
        kernel=kernel,
        rival=rival,
        comparison=rng.choice(list(Comparison)),
        time_ms=rng.choice(NUMBERS),
        reference_ms=rng.choice(NUMBERS),
        blocks=(Measurement(role="rival", round=0, times_ms=tuple(rng.sample(NUMBERS, 3))),) * rng.randrange(3),
        **ratios,
    )


def random_evaluation(rng: Random, run: Run, kernel: Kernel) -> Evaluation:
    def number() -> float | None:
        return rng.choice((None, *NUMBERS))

    return grouped(
        Evaluation,
        kernel=kernel.id,
        problem=run.problem,
        device=run.device,
        precision="fp32",
        verdict=rng.choice(list(Verdict)),
        message=rng.choice(NASTY),
        precision_class=rng.choice((None, "fp32", "half")),
        error=number(),
        worst_tile=number(),
        reference_error=number(),
        allclose=rng.choice((None, True, False)),
        time_ms=number(),
        reference_ms=number(),
        speedup=number(),
        speedup_low=number(),
        speedup_high=number(),
        comparison=rng.choice((None, *Comparison)),
        speedup_best=number(),
        best_baseline=rng.choice((None, *NASTY)),
        sandbox=rng.choice(NASTY),
        profile=random_profile(rng) if rng.random() < 0.5 else None,
        tags=tuple(rng.choice(NASTY) for _ in range(rng.randrange(3))),
        build_seconds=rng.choice(NUMBERS),
        seconds=rng.choice(NUMBERS),
        started_at=rng.choice((0.0, 1.795e9 + 1 / 3)),
        phases={rng.choice(NASTY): rng.choice(NUMBERS) for _ in range(rng.randrange(4))},
        device_instance=rng.choice(NASTY),
        traits=rng.choice((None, (), tuple(Trait))),
        binary_hash=rng.choice(NASTY),
        identical_to=rng.choice((None, kernel.id)),
        blocks=tuple(
            Measurement(role=rng.choice(("child", "reference")), round=index, times_ms=tuple(rng.sample(NUMBERS, 3)))
            for index in range(rng.randrange(4))
        ),
    )


@pytest.mark.parametrize("seed", range(20))
def test_every_record_comes_back_as_it_was(archive: Archive, problem: Problem, seed: int) -> None:
    rng = Random(seed)
    run = make_run(problem, seed=rng.randrange(10**9), versions={name: name for name in NASTY})
    archive.add_problem(problem)
    archive.add_run(run)
    births, kernels, ideas, evaluations, placements, confirmations = [], {}, {}, {}, [], []
    for number in range(8):
        kernel = random_kernel(rng) if rng.random() < 0.8 else None
        idea = None
        if rng.random() < 0.5:
            idea = Idea(
                title=rng.choice(NASTY), mechanism=str(number), technique=rng.choice(NASTY),
                bottleneck=rng.choice(NASTY), expected_gain=rng.choice((None, *NUMBERS)), proposed_by=rng.choice(NASTY),
            )  # fmt: skip
            ideas[idea.id] = idea
        birth = random_birth(rng, run, number, kernel, idea)
        archive.add_birth(birth, kernel=kernel, idea=idea)
        births.append(birth)
        if kernel is not None:
            kernels[kernel.id] = kernel
            evaluations[kernel.id] = random_evaluation(rng, run, kernel)
            archive.add_evaluation(evaluations[kernel.id])
            rival = rng.choice((None, *kernels))
            confirmations.append(random_confirmation(rng, run, kernel.id, rival, number))
            archive.add_contest([confirmations[-1]])
            placements.append(
                Placement(
                    run=run.id, island=1, niche=rng.choice(NASTY), kernel=kernel.id, generation=number, via="birth"
                )
            )
    for placement in placements:
        archive.add_placement(placement)

    assert archive.problems.get(problem.id) == problem
    assert archive.runs.get(run.id) == run
    assert archive.runs.births(run.id) == births
    assert archive.runs.kernels(run.id) == kernels
    assert archive.runs.ideas(run.id) == ideas
    assert archive.runs.placements(run.id) == placements
    assert archive.runs.tokens(run.id) == (
        sum(b.prompt_tokens for b in births),
        sum(b.completion_tokens for b in births),
    )
    assert archive.runs.evaluations(run.id) == {
        kernel: dataclasses.replace(one, blocks=()) for kernel, one in evaluations.items()
    }
    assert archive.runs.confirmations(run.id) == [dataclasses.replace(one, blocks=()) for one in confirmations]
    for confirmed in confirmations:
        assert archive.kernels.confirmations(confirmed.kernel) == [confirmed]
    for kernel, one in evaluations.items():
        found = archive.kernels.evaluation(kernel, problem.id, run.device, "fp32")
        assert found == one
    assert [dataclasses.replace(birth, prompt="", reply="") for birth in births] == archive.runs.births(
        run.id, texts=False
    )


def test_text_that_utf_8_lacks_is_kept_as_well_as_can_be(small_archive: Any) -> None:
    """A kernel may raise halves of surrogate pairs; a run must not die of it."""
    found = next(iter(small_archive.evaluations.values()))
    with Archive(small_archive.path) as archive:
        archive.add_evaluation(dataclasses.replace(found, message="before \ud800 after", blocks=()))
        assert archive.kernels.evaluations(found.kernel)[-1].message == "before ? after"
