"""Kernels with identical binaries are judged once: what counts as equal, and what never does."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from kbevolve.archive.parts import changed, grouped
from kbevolve.archive.records import Evaluation, Kernel, Verdict
from kbevolve.configs.catalog import find_problem
from kbevolve.configs.problem import Problem
from kbevolve.configs.seeds import seed_files
from kbevolve.configs.settings import Settings
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.judging.binary_dedup import KnownBinaries
from kbevolve.evaluators.judging.judge import Judge
from kbevolve.evaluators.sandbox.build_protocol import BuildResult, WorkerBuild
from kbevolve.islands.source.canonical import shell_of

HOST, DEVICE = "void launch(torch::Tensor x);", "__global__ void twice(float* x) { x[0] *= 2; }"
#: A line of the C++ seed of softmax.
LEAST = "static inline long least(long x, long y) { return x < y ? x : y; }"
#: What torch's builder makes of these texts.
SOURCES = (
    ("main.cpp", f"#include <torch/extension.h>\n{HOST}\n"),
    ("cuda.cu", f"#include <cuda.h>\n{DEVICE}\n{HOST}\n"),
)


def built(
    library: bytes = b"machine code", sources: Sequence[tuple[str, str]] = SOURCES, **flags: object
) -> WorkerBuild:
    request = {"name": "x", "sources": [list(source) for source in sources], "cflags": [], "with_cuda": True} | flags
    return WorkerBuild.of(request, BuildResult(product=library))


def code(
    *replies: WorkerBuild, texts: Sequence[str] = (DEVICE,), shell: str = "shell", built_alone: bool = False
) -> str:
    binaries = KnownBinaries(lambda source: (shell, tuple(texts)))
    return binaries.hash_of("source", replies, built_alone=built_alone)


def test_everything_that_runs_is_in_the_hash_and_renamed_native_names_are_not() -> None:
    other = "__global__ void twice(float* y) { y[0] *= 2; }  // renamed"
    renamed = ((SOURCES[0]), ("cuda.cu", SOURCES[1][1].replace(DEVICE, other)))
    assert len(code(built())) == 16
    assert code(built(sources=renamed), texts=(other,)) == code(built()) == code(built(name="y"))
    different = [
        code(built(b"other machine code")),
        code(built(), shell="another shell"),
        code(built(cflags=["-O1"])),
        code(built(sources=(SOURCES[0], ("cuda.cu", SOURCES[1][1].replace("cuda.h", "mma.h"))))),
        code(built(), texts=(DEVICE, SOURCES[0][1])),
    ]
    assert "" not in different
    assert len({code(built()), *different}) == len(different) + 1


@pytest.mark.parametrize(
    ("replies", "given"),
    [
        ((), {}),
        ((built(),), {"built_alone": True}),
        ((built(),), {"texts": (DEVICE, "int compiled_at_the_first_call;")}),
        ((built(),), {"texts": (DEVICE, HOST)}),  # it stands in both sources
        ((built(), built(sources=(("more.cpp", "int more;"),))), {}),
        ((built(), WorkerBuild.of({"sources": []}, BuildResult(product=None))), {}),
        ((built(sources=(("cuda.cu", DEVICE + DEVICE),)),), {}),
    ],
)
def test_uncertain_builds_have_no_hash(replies: tuple[WorkerBuild, ...], given: dict[str, object]) -> None:
    assert code(*replies, **given) == ""  # type: ignore[arg-type]


def test_the_number_that_nvcc_derives_from_a_text_is_left_out_if_there_is_only_one() -> None:
    def library(*numbers: str) -> bytes:
        names = (
            f"_ZN37_INTERNAL_{number}_7_cuda_cu_50803fc44cuda3std _GLOBAL__N__{number}_4_s_cu_go" for number in numbers
        )
        return f"\x7fELF {' '.join(names)} rest".encode()

    plain = code(built(library("578a764e")))
    assert code(built(library("6e074a8b"))) == plain
    assert code(built(library("578a764e", "578a764e"))) != plain
    two = {code(built(library(*numbers))) for numbers in (("578a764e", "6e074a8b"), ("578a764e", "deadbeef"))}
    assert len(two) == 2, "of two numbers one may be the kernel's own text"
    assert code(built(b"_INTERNAL_578a764e_x")) != code(built(b"_INTERNAL_6e074a8b_x"))


def test_a_definition_may_hold_the_declaration() -> None:
    sources = (("main.cpp", HOST), ("cuda.cu", f"{HOST} {DEVICE}"))
    assert code(built(sources=sources), texts=(HOST, f"{HOST} {DEVICE}"))


def test_without_a_shell_there_is_no_hash() -> None:
    assert KnownBinaries(lambda source: None).hash_of("source", [built()], built_alone=False) == ""
    assert KnownBinaries(None).hash_of("source", [built()], built_alone=False) == ""


def found(kernel: str, code: str = "c0de", **facts: object) -> Evaluation:
    known = {"problem": "p", "device": "d", "precision": "fp32", "verdict": Verdict.CORRECT, "speedup": 1.5}
    return grouped(Evaluation, kernel=kernel, binary_hash=code, **known | facts)  # type: ignore[arg-type]


def test_an_identical_binary_gets_the_first_verdict_and_names_its_kernel() -> None:
    binaries = KnownBinaries(shell_of)
    binaries.remember(found("first", tags=("leaked-threads",)))
    binaries.remember(found("second", speedup=1.6))  # judged beside the first
    asked = found("third", tags=("streams",), speedup=None, started_at=7.0, device_instance="here")
    answer = binaries.verdict(asked)
    assert answer is not None
    assert (
        answer.kernel,
        answer.compiled.identical_to,
        answer.timing.speedup,
        answer.execution.started_at,
        answer.execution.device_instance,
    ) == (
        "third",
        "first",
        1.5,
        7.0,
        "here",
    )
    assert answer.tags == ("streams", "leaked-threads")
    assert answer.message == "compiles to the machine code of kernel first, whose verdict and times these are"
    binaries.remember(changed(answer, binary_hash="other"))
    assert binaries.verdict(found("fourth", code="other")) is None, "a copy is no verdict"


def test_a_kernel_evaluated_twice_and_failures_are_judged_again() -> None:
    binaries = KnownBinaries(shell_of)
    binaries.remember(found("first"))
    assert binaries.verdict(found("first")) is None
    binaries.remember(found("wrong", code="bad", verdict=Verdict.WRONG))
    assert binaries.verdict(found("other", code="bad")) is None
    binaries.remember(found("without", code=""))
    assert binaries.verdict(found("other", code="")) is None


def test_a_kernel_that_fails_a_later_test_is_forgotten() -> None:
    binaries = KnownBinaries(shell_of)
    binaries.remember(found("first"))
    binaries.remember(found("other", code="other"))
    binaries.forget({"first": "a failure"})
    assert binaries.verdict(found("second")) is None
    assert binaries.verdict(found("second", code="other")) is not None


# ---- a real judge, real compilers -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def problem() -> Problem:
    return replace(find_problem("L1/softmax"), cpu_sizes={"ROWS": 128, "COLUMNS": 8192})


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    settings = Settings.load(preset="cpu", overrides={"evaluation.least_rounds": 3, "evaluation.rounds": 3})
    with Judge(find_device("cpu"), settings.evaluation, shell_of=shell_of) as made:
        yield made


def seed(*changes: tuple[str, str]) -> Kernel:
    source = seed_files("L1/softmax", "cpu")[0].read_text()
    for before, after in changes:
        assert before in source
        source = source.replace(before, after)
    return Kernel.from_source(source)


@pytest.mark.slow
def test_identical_machine_code_is_judged_once(judge: Judge, problem: Problem) -> None:
    first = judge.evaluate(problem, seed())
    assert first.verdict is Verdict.CORRECT, first.message
    assert first.compiled.identical_to is None
    assert first.compiled.binary_hash
    same = judge.evaluate(problem, seed((LEAST, LEAST.replace("x", "a").replace("y", "b"))))
    assert (same.compiled.binary_hash, same.compiled.identical_to) == (first.compiled.binary_hash, first.kernel)
    assert (same.timing.time_ms, same.timing.speedup_low, same.accuracy.error) == (
        first.timing.time_ms,
        first.timing.speedup_low,
        first.accuracy.error,
    )
    assert same.blocks == ()
    assert not {"trials", "timing", "profile"} & set(same.execution.phases)
    tuned = judge.evaluate(problem, seed(("#define PASSES three", "#define PASSES online")))
    assert tuned.compiled.identical_to is None
    assert tuned.compiled.binary_hash not in ("", first.compiled.binary_hash)


@pytest.mark.slow
def test_python_around_the_native_code_is_part_of_the_hash(judge: Judge, problem: Problem) -> None:
    plain = judge.evaluate(problem, seed(("#define PASSES three", "#define PASSES online")))
    slower = seed(
        ("#define PASSES three", "#define PASSES online /* as before */"),
        ("        x = x.contiguous()\n", "        x = x.contiguous().clone()\n"),
    )
    other = judge.evaluate(problem, slower)
    assert other.verdict is Verdict.CORRECT, other.message
    assert other.compiled.identical_to is None
    assert other.compiled.binary_hash != plain.compiled.binary_hash


@pytest.mark.slow
def test_a_judge_without_shells_judges_every_kernel_itself(problem: Problem) -> None:
    settings = Settings.load(preset="cpu", overrides={"evaluation.least_rounds": 3, "evaluation.rounds": 3})
    with Judge(find_device("cpu"), settings.evaluation) as plain:
        found = [plain.evaluate(problem, seed((LEAST, f"{LEAST} {';' * more}"))) for more in range(2)]
    assert [(one.verdict, one.compiled.binary_hash, one.compiled.identical_to) for one in found] == [
        (Verdict.CORRECT, "", None)
    ] * 2
    assert all(one.blocks for one in found)
