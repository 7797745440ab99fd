"""Examples and short files of every language through a real judge on a GPU, where the packages of the language are."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
import torch

from kbevolve.archive.records import Backend, Idea, Kernel, Operator, Verdict
from kbevolve.configs.examples import NAMES, examples
from kbevolve.configs.problem import parse_problem
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.judging.judge import Judge
from kbevolve.evolve.proposers.codegen import prompts
from kbevolve.evolve.proposers.codegen.languages import obstacle, possible_backends
from kbevolve.islands.policy import Policy
from tests.evolve.proposers.codegen.briefs import brief

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

TWICE = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return 2.0 * x


def get_inputs():
    return [torch.randn(4096, 4096)]


def get_init_inputs():
    return []
"""
LANGUAGES = [one for one in Backend if one not in (Backend.TORCH, Backend.CPP)]


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    settings = EvaluationSettings(least_rounds=3, rounds=5, baselines=False)
    with Judge(find_device("cuda"), settings) as made:
        yield made


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> Backend:
    found, device = cast(Backend, request.param), find_device("cuda").description
    if found not in possible_backends("cuda", device):
        pytest.skip(f"{found} is for other devices")
    if lacking := obstacle(found, device):
        pytest.skip(lacking)
    return found


def assert_correct(judge: Judge, problem: str, source: str, backend: Backend) -> None:
    kernel = Kernel.from_source(source)
    assert kernel.backend is backend
    found = judge.evaluate(parse_problem(problem, name="example", path=Path("problem.py")), kernel)
    print(f"{backend}: {found.verdict.name}, {found.timing.speedup} times eager, tags {', '.join(found.tags)}")
    assert found.verdict is Verdict.CORRECT, found.message
    assert not {"library-only", "third-party"} & set(found.tags)


@pytest.mark.parametrize("backend", LANGUAGES, indirect=True)
@pytest.mark.parametrize("name", NAMES)
def test_the_judge_accepts_an_example(name: str, backend: Backend, judge: Judge) -> None:
    example = examples(backend)[NAMES.index(name)]
    assert_correct(judge, example.problem, example.kernel, backend)


@pytest.mark.parametrize("backend", LANGUAGES, indirect=True)
def test_the_judge_accepts_the_short_file_of_the_prompt(backend: Backend, judge: Judge) -> None:
    policy = Policy(name="one language", backend=backend)
    device = find_device("cuda").description
    asked = brief(Operator.REWRITE, device_type="cuda", device=device, policy=policy)
    code = prompts.implement(asked, Idea(title="t", mechanism="m", technique="fusion"))
    files = re.findall(r"A complete file of this kind.*?```python\n(.*?)```", code, re.DOTALL)
    assert_correct(judge, TWICE, files[0], backend)
