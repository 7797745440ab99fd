"""Judges for a whole test session, one for each policy, started when first used."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.records import Evaluation, Kernel
from kbevolve.configs.problem import Problem, parse_problem
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.disk_cache import DiskCache
from kbevolve.evaluators.judging.judge import Judge
from kbevolve.evaluators.lint import LintReport, lint
from kbevolve.evaluators.lint.process import LintProcess
from tests.hacks.catalogue import Policy

HERE = Path(__file__).parent

#: Everything is accepted that is not a lie. Degenerate problems are judged, too: lies about them must fail.
LENIENT = EvaluationSettings(
    trials=7,
    warmup=1,
    least_rounds=3,
    rounds=3,
    calls_per_round=3,
    timing_seconds=0.3,
    force=True,
    baselines=False,
    profile=False,
    build_seconds=60,
    import_seconds=5,
    run_seconds=5,
    total_seconds=60,
)
#: Seconds that an import may take where torch has CUDA: torch.compile alone needs more than five.
CUDA_IMPORT_SECONDS = 30
#: Settings by policy.
POLICIES = {
    Policy.LENIENT: LENIENT,
    Policy.OWN_WORK: LENIENT.model_copy(update={"allow_library": "none", "force": False}),
    Policy.FRESH_WEIGHTS: LENIENT.model_copy(update={"allow_prepacked": False}),
}


class Judges:
    """Evaluates kernels under a policy. The lint's refusals can be switched off: no other check may need them."""

    def __init__(self, disk_cache: DiskCache, device: str, problems: Path) -> None:
        self._disk_cache = disk_cache
        self._device = device
        self._problems = problems
        self._judges: dict[Policy, Judge] = {}

    def evaluate(
        self, problem: str, source: str, *, policy: Policy = Policy.LENIENT, lint_refuses: bool = True
    ) -> Evaluation:
        """Judge `source` on the problem of that name."""
        if policy not in self._judges:
            settings = POLICIES[policy]
            if self._device == "cuda":
                settings = settings.model_copy(update={"import_seconds": CUDA_IMPORT_SECONDS})
            self._judges[policy] = Judge(find_device(self._device), settings, disk_cache=self._disk_cache)
        with pytest.MonkeyPatch.context() as patch:
            if not lint_refuses:
                patch.setattr(LintProcess, "lint", tags_only)
            return self._judges[policy].evaluate(self.problem(problem), Kernel.from_source(source))

    def problem(self, name: str) -> Problem:
        """The problem ``problems/<name>.py``."""
        path = self._problems / f"{name}.py"
        return parse_problem(path.read_text(), name=f"tests/{name}", path=path)

    def close(self) -> None:
        """End all judges."""
        for judge in self._judges.values():
            judge.close()


def tags_only(process: LintProcess, source: str, **keywords: Any) -> LintReport:
    """The lint without its refusals."""
    return replace(lint(source, **keywords), refusal="")


@pytest.fixture(scope="session")
def judges() -> Iterator[Judges]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", "sk-very-secret")  # for the attack that looks for keys
        found = Judges(DiskCache(), "cpu", HERE / "problems")
        yield found
        found.close()
