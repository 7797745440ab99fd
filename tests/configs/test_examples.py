"""The examples of few-shot prompts: accepted by the judge where they can run, and without what compiles slowly."""

import ast
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbevolve.archive.identity import backend_of
from kbevolve.archive.records import Kernel, Verdict
from kbevolve.configs.examples import NAMES, Example, examples
from kbevolve.configs.problem import parse_problem
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.judging.judge import Judge
from kbevolve.evaluators.lint import lint
from kbevolve.evolve.proposers.tuning.tunables import declared
from kbevolve.islands.source.active_code import active_code

LANGUAGES = ("cpp", "cuda", "triton", "tilelang", "cute")
ALL = [(language, example) for language in LANGUAGES for example in examples(language)]
IDS = [f"{language}-{example.title.split()[1]}" for language, example in ALL]
SETTINGS = EvaluationSettings(least_rounds=3, rounds=3, calls_per_round=1, baselines=False)


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(find_device("cpu"), SETTINGS) as made:
        yield made


def test_each_language_has_all_and_the_others_have_none() -> None:
    assert [language for language, _ in ALL] == [one for one in LANGUAGES for _ in NAMES]
    assert examples("hip") == examples("thunderkittens") == ()


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


@pytest.mark.parametrize("example", [*examples("cpp"), *examples("cuda")])
def test_native_examples_stay_in_the_fast_lane(example: Example) -> None:
    native = active_code(example.kernel).native
    assert set(re.findall(r"#include (\S+)", native)) <= {"<cmath>", "<cstdint>"}, "torch's headers take 50 s"
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
    tree = ast.parse(examples("cuda")[NAMES.index(name)].kernel)
    texts = [
        node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SOURCE"
    ]
    (tmp_path / "example.cu").write_text(str(ast.literal_eval(texts[0])))
    command = ["nvcc", "-gencode=arch=compute_90,code=sm_90", "-Werror", "all-warnings", "-c", "example.cu"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
