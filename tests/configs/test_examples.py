"""The examples of few-shot prompts: accepted by the judge where they can run, and without what compiles slowly."""

import ast
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch.utils import cpp_extension

from kbevolve.archive.identity import backend_of
from kbevolve.archive.records import Kernel, Verdict
from kbevolve.configs.examples import NAMES, Example, examples
from kbevolve.configs.problem import parse_problem
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.builds.flags import Tool, checked
from kbevolve.evaluators.builds.sandboxed_compiler import is_readable
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.judging.judge import Judge
from kbevolve.evaluators.lint import lint
from kbevolve.evolve.proposers.codegen.languages import KITTENS
from kbevolve.evolve.proposers.tuning.tunables import declared
from kbevolve.islands.source.active_code import active_code

LANGUAGES = ("cpp", "cuda", "triton", "tilelang", "cute", "thunderkittens", "hip")
#: Language of native code -> the headers of its examples: none of torch's, which take 50 s.
HEADERS = {
    "cpp": {"<cmath>", "<cstdint>"},
    "cuda": {"<cstdint>"},
    "thunderkittens": {'"kittens.cuh"'},
    "hip": {"<hip/hip_runtime.h>", "<cstdint>"},
}
ALL = [(language, example) for language in LANGUAGES for example in examples(language)]
IDS = [f"{language}-{example.title.split()[1]}" for language, example in ALL]
SETTINGS = EvaluationSettings(least_rounds=3, rounds=3, calls_per_round=1, baselines=False)


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(find_device("cpu"), SETTINGS) as made:
        yield made


def assigned(example: Example, name: str, **names: object) -> object:
    """What a file assigns to a name at its top, where its expression needs no more than `names`."""
    tree = ast.parse(example.kernel)
    (found,) = [one for one in tree.body if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == name]
    return eval(compile(ast.Expression(found.value), "example", "eval"), dict(names))


def assert_compiles(command: list[str], suffix: str, example: Example, folder: Path, **variables: str) -> None:
    """The file's native source becomes an object, without a warning where the command says so."""
    (folder / f"example{suffix}").write_text(str(assigned(example, "SOURCE")))
    command = [*command, "-c", f"example{suffix}", "-o", "example.o"]
    environment = os.environ | variables
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr


def test_each_language_has_all() -> None:
    assert [language for language, _ in ALL] == [one for one in LANGUAGES for _ in NAMES]
    assert examples("torch") == ()


@pytest.mark.parametrize(("language", "example"), ALL, ids=IDS)
def test_an_example_is_a_kernel_of_its_own(language: str, example: Example) -> None:
    assert backend_of(example.kernel) == language
    assert len(example.kernel) < 6000, "a prompt shows three"
    found = lint(example.kernel, allow_library="none", reference_source=example.problem)
    assert found.refusal == ""
    assert set(found.tags) <= {"data-pointer", "file-write"}
    for tunable in declared(example.kernel):
        assert tunable.value in tunable.choices
    assert len(declared(example.kernel)) >= (0 if example.title.startswith("A bias") else 1)


@pytest.mark.parametrize(("language", "example"), [pair for pair in ALL if pair[0] in HEADERS])
def test_native_examples_stay_in_the_fast_lane(language: str, example: Example) -> None:
    native = active_code(example.kernel).native
    assert set(re.findall(r"#include (\S+)", native)) <= HEADERS[language]
    assert 'extern "C"' in native


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
@pytest.mark.parametrize("name", NAMES)
def test_the_judge_accepts_examples_in_cpp(name: str, judge: Judge) -> None:
    example = examples("cpp")[NAMES.index(name)]
    problem = parse_problem(example.problem, name=f"examples/{name}", path=Path("problem.py"))
    found = judge.evaluate(problem, Kernel.from_source(example.kernel))
    assert found.verdict is Verdict.CORRECT, found.message


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
@pytest.mark.parametrize("name", NAMES)
def test_examples_in_cuda_compile(name: str, tmp_path: Path) -> None:
    command = ["nvcc", "-gencode=arch=compute_90,code=sm_90", "-Werror", "all-warnings"]
    assert_compiles(command, ".cu", examples("cuda")[NAMES.index(name)], tmp_path)


def test_the_judge_lets_nvcc_have_the_flags_of_thunderkittens() -> None:
    for example in examples("thunderkittens"):
        flags = assigned(example, "FLAGS", MAJOR=9, MINOR=0)
        assert isinstance(flags, list)
        assert checked(flags, Tool.NVCC, is_readable) == tuple(flags)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None or not KITTENS.exists(), reason="no nvcc or no ThunderKittens")
@pytest.mark.parametrize("major", [9, 10])
@pytest.mark.parametrize("name", NAMES)
def test_examples_in_thunderkittens_compile(name: str, major: int, tmp_path: Path) -> None:
    example = examples("thunderkittens")[NAMES.index(name)]
    flags = assigned(example, "FLAGS", MAJOR=major, MINOR=0)
    assert isinstance(flags, list)
    assert f"-I{KITTENS.parent}" in flags
    # torch adds its own, without which the headers do not compile
    command = ["nvcc", *cpp_extension.COMMON_NVCC_FLAGS, *flags, "-Werror", "all-warnings"]
    assert_compiles(command, ".cu", example, tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("hipcc") is None, reason="no hipcc")
@pytest.mark.parametrize("name", NAMES)
def test_examples_in_hip_compile(name: str, tmp_path: Path) -> None:
    example = examples("hip")[NAMES.index(name)]
    flags = assigned(example, "FLAGS", ARCH="gfx90a")
    assert isinstance(flags, list)
    command = ["hipcc", *cpp_extension.COMMON_HIPCC_FLAGS, *cpp_extension.COMMON_HIP_FLAGS, *flags, "-Wall", "-Werror"]
    # hipcc compiles for NVIDIA's GPUs where it finds nvcc
    assert_compiles(command, ".hip", example, tmp_path, HIP_PLATFORM="amd")
