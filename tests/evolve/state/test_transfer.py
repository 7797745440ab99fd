"""What a run is given of other problems: fixed when it begins, of similar problems, and nothing of its own problem."""

from dataclasses import replace
from pathlib import Path

import pytest

from kbevolve.archive.parts import grouped
from kbevolve.archive.records import Birth, BirthState, Evaluation, Idea, Kernel, Operator, ProblemCard, Run, Verdict
from kbevolve.archive.store import Archive
from kbevolve.configs.problem import Problem, parse_problem
from kbevolve.evolve.state.transfer import TransferredKnowledge, alike, as_text, from_text, gather, received_by
from kbevolve.islands.credit.claims import Calibration
from tests.evolve.doubles import DEVICE

TEXT = '"""A problem."""\n\n\nclass Model: ...  # {}\n\n\ndef get_inputs(): ...\n\n\ndef get_init_inputs(): ...\n'


def problem(name: str, operations: str) -> Problem:
    return parse_problem(TEXT.format(operations), name=name, path=Path("p.py"))


SOFTMAX, LOGSUMEXP = problem("L1/softmax", "softmax of x"), problem("L1/lse", "logsumexp of x")
MATMUL = problem("L1/matmul", "torch.matmul(a, b)")


def add_run(archive: Archive, of: Problem, name: str, **facts: object) -> Run:
    archive.add_problem(of)
    run = Run(**{"id": name, "problem_name": of.name, "problem": of.id, "device": DEVICE, "seed": 0, "settings": "{}"}
              | facts)  # fmt: skip
    archive.add_run(run)
    return run


def create(
    archive: Archive, run: Run, speedups: list[float | None], technique: str = "one-pass", *, torch: bool = False
) -> list[Kernel]:
    """A start of speed 1, and its children with an idea each."""
    kernels: list[Kernel] = []
    for number, speedup in enumerate([1.0, *speedups]):
        mark = "" if torch else "import triton  # @triton.jit\n\n@triton.jit\ndef k(): ...\n\n\n"
        kernel = Kernel.from_source(f"{mark}class ModelNew: {run.problem[:4]} = {number}, {technique!r}\n")
        idea = Idea(
            title=f"{technique} {number}",
            mechanism="m",
            technique=technique,
            bottleneck="memory",
            expected_gain=2.0,
            proposed_by="m",
        )
        child = Birth(
            run=run.id, generation=number, island=0, slot=0, operator=Operator.MUTATE, state=BirthState.CREATED,
            parents=(kernels[0].id,) if kernels else (), kernel=kernel.id, idea=idea.id,
        )  # fmt: skip
        if number == 0:
            child = replace(child, operator=Operator.SEED, idea=None)
        archive.add_birth(child, kernel=kernel, idea=idea)
        verdict = Verdict.WRONG if speedup is None else Verdict.CORRECT
        archive.add_evaluation(
            grouped(Evaluation,
                kernel=kernel.id, problem=run.problem, device=run.device, precision="fp32", verdict=verdict,
                speedup=speedup, speedup_low=speedup, speedup_high=speedup,
            )
        )  # fmt: skip
        kernels.append(kernel)
    return kernels


def test_credit_comes_from_all_problems_and_kernels_from_similar_ones() -> None:
    archive = Archive(":memory:")
    best = create(archive, add_run(archive, LOGSUMEXP, "lse-1"), [1.5, 3.0, None])[2]
    create(archive, add_run(archive, MATMUL, "matmul-1"), [2.0], "block-tiling")
    run = add_run(archive, SOFTMAX, "softmax-1")
    given = gather(archive, run, SOFTMAX)
    assert set(given.tallies) == {
        ("one-pass",), ("one-pass", "memory"), ("block-tiling",), ("block-tiling", "memory")
    }  # fmt: skip
    assert (given.tallies[("one-pass",)].valid, given.tallies[("one-pass",)].invalid) == (2, 1)
    (transferred,) = given.kernels
    assert (transferred.problem, transferred.kernel, transferred.speedup) == ("L1/lse", best.id, 3.0)
    assert transferred.source == best.source
    assert [(one.title, one.gain) for one in given.ideas] == [("one-pass 2", 3.0), ("one-pass 1", 1.5)]


def test_nothing_comes_from_the_same_problem_another_device_precision_or_later_runs() -> None:
    archive = Archive(":memory:")
    create(archive, add_run(archive, SOFTMAX, "softmax-0"), [2.0])
    create(archive, add_run(archive, LOGSUMEXP, "lse-1", device="another"), [2.0])
    half = '{"evaluation": {"precision": "fp16"}}'
    create(archive, add_run(archive, LOGSUMEXP, "lse-2", settings=half), [2.0])
    run = add_run(archive, SOFTMAX, "softmax-1")
    create(archive, add_run(archive, LOGSUMEXP, "lse-3"), [2.0])
    assert gather(archive, run, SOFTMAX) == TransferredKnowledge()


def test_what_is_no_kernel_of_its_own_or_no_faster_than_eager_is_not_passed_on() -> None:
    archive = Archive(":memory:")
    create(archive, add_run(archive, LOGSUMEXP, "lse-1"), [2.0], torch=True)
    create(archive, add_run(archive, LOGSUMEXP, "lse-2"), [0.9, 1.0], "fusion")
    assert gather(archive, add_run(archive, SOFTMAX, "softmax-1"), SOFTMAX).kernels == ()


def test_what_was_given_is_written_down_and_stays() -> None:
    archive = Archive(":memory:")
    create(archive, add_run(archive, LOGSUMEXP, "lse-1"), [1.5, None])
    run = add_run(archive, SOFTMAX, "softmax-1")
    given = received_by(archive, run, SOFTMAX)
    assert given.ideas
    create(archive, add_run(archive, LOGSUMEXP, "lse-2"), [5.0], "fusion")
    assert received_by(archive, run, SOFTMAX) == given
    same, other = add_run(archive, SOFTMAX, "softmax-2"), add_run(archive, SOFTMAX, "softmax-3", seed=5)
    assert received_by(archive, same, SOFTMAX) == given, "the same seed is the same run"
    assert received_by(archive, other, SOFTMAX).ideas[0].title == "fusion 1"


def test_a_run_of_an_older_version_goes_on_with_nothing() -> None:
    archive = Archive(":memory:")
    create(archive, add_run(archive, LOGSUMEXP, "lse-1"), [1.5])
    run = add_run(archive, SOFTMAX, "softmax-1")
    create(archive, run, [2.0])
    assert received_by(archive, run, SOFTMAX) == TransferredKnowledge()


def test_a_legacy_survives_being_written() -> None:
    archive = Archive(":memory:")
    create(archive, add_run(archive, LOGSUMEXP, "lse-1"), [1.5, 1.1, None])
    given = gather(archive, add_run(archive, SOFTMAX, "softmax-1"), SOFTMAX)
    assert given.kernels
    assert given.claims["m"].slope < Calibration().slope, "a factor of 2 was claimed each time"
    assert from_text(as_text(given), archive) == given


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (SOFTMAX, LOGSUMEXP, True), (SOFTMAX, MATMUL, False), (MATMUL, problem("x", "a matmul, then relu"), True),
        (MATMUL, problem("x", "matmul, relu, softmax"), False), (problem("x", "?"), problem("y", "?"), False),
    ],
)  # fmt: skip
def test_problems_are_alike_by_what_they_do(one: Problem, other: Problem, expected: bool) -> None:
    assert alike(one, other) is alike(other, one) is expected


def test_problems_that_are_bound_by_different_things_are_not_alike() -> None:
    memory = ProblemCard(problem="p", device="d", precision="fp32", memory_ms=1.0, roofline_ms={"fp32": 1.0})
    arithmetic = replace(memory, roofline_ms={"fp32": 5.0})
    assert alike(SOFTMAX, LOGSUMEXP, memory, memory)
    assert not alike(SOFTMAX, LOGSUMEXP, memory, arithmetic)
    assert alike(SOFTMAX, LOGSUMEXP, memory, None)


def test_settings_of_tunables_come_from_the_nearest_problem_first_and_are_recorded() -> None:
    archive = Archive(":memory:")
    for of, flops, name in ((LOGSUMEXP, 10**9, "lse-1"), (MATMUL, 10**12, "matmul-1")):
        other = add_run(archive, of, name)
        archive.add_card(ProblemCard(problem=of.id, device=DEVICE, precision="fp32", flops=flops))
        for number, speedup in enumerate((1.0, 3.0, None)):
            tuned = Kernel.from_source(f"TILE = {number}  # tune: 0, 1, 2\nclass ModelNew: ...  # {name}\n")
            archive.add_birth(
                Birth(run=other.id, generation=number, island=0, slot=0, operator=Operator.TUNE,
                      state=BirthState.CREATED, parents=(), kernel=tuned.id),
                kernel=tuned,
            )  # fmt: skip
            archive.add_evaluation(
                grouped(Evaluation, kernel=tuned.id, problem=of.id, device=DEVICE, precision="fp32",
                        verdict=Verdict.WRONG if speedup is None else Verdict.CORRECT, speedup=speedup)
            )  # fmt: skip
    run = add_run(archive, SOFTMAX, "softmax-1")
    archive.add_card(ProblemCard(problem=SOFTMAX.id, device=DEVICE, precision="fp32", flops=2 * 10**9))
    given = received_by(archive, run, SOFTMAX)
    assert [(one.problem, one.speedup) for one in given.settings] == [
        ("L1/lse", 3.0), ("L1/lse", 1.0), ("L1/matmul", 3.0), ("L1/matmul", 1.0),
    ]  # fmt: skip
    assert given.settings[0].source.startswith("TILE = 1 ")
    assert given.settings[0].closeness > 0.7 > 0.3 > given.settings[2].closeness
    assert from_text(as_text(given), archive) == given == received_by(archive, run, SOFTMAX)
