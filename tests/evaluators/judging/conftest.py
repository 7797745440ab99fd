"""A judge on the CPU, without the lint's refusals."""

from collections.abc import Iterator

import pytest

from kbevolve.archive.records import Kernel
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.judging import paired_timing
from kbevolve.evaluators.judging.judge import Judge
from kbevolve.evaluators.lint import LintReport
from kbevolve.evaluators.lint.process import LintProcess
from kbevolve.evaluators.lint.report import not_python
from tests.evaluators.judging.layer import SETTINGS, Evaluate, problem_of


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", "sk-very-secret")  # for the test that no worker sees it
        # What the lint refuses must be caught without it, too: a filter is no defence.
        patch.setattr(LintProcess, "lint", lambda _, text, **__: LintReport(tags=(), refusal=not_python(text)))
        with Judge(find_device("cpu"), SETTINGS) as made:
            yield made


@pytest.fixture
def evaluate(judge: Judge) -> Evaluate:
    return lambda source: judge.evaluate(problem_of(), Kernel.from_source(source))


@pytest.fixture
def believed_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge takes reported times as they are. On a busy machine its own clock may make it measure once more."""
    monkeypatch.setattr(paired_timing, "check_clocks", lambda *_, **__: None)
    monkeypatch.setattr(paired_timing, "_corrected", lambda context, rounds, names: rounds)
