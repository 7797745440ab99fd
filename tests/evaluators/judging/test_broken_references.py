"""References that fail, or that no kernel can be judged by."""

import pytest

from kbevolve.archive.records import Kernel, Verdict
from kbevolve.configs.errors import EvaluatorError
from kbevolve.evaluators.judging.judge import Judge
from tests.evaluators.judging.layer import PROBLEM, RIGHT, SETTINGS, candidate, problem_of


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("return torch.relu(x @ self.weight)", "return undefined_name", "forward() fails on cpu: NameError"),
        ("return [COLUMNS]", "return [COLUMNS, object()]", "Model fails"),
        ("return torch.relu(x @ self.weight)", "return torch.rand(48, 64)", "random or unstable"),
        ("return [torch.rand(ROWS, COLUMNS)]", "raise OSError('no data')", "get_inputs() fails"),
    ],
)
def test_a_broken_reference_is_an_infrastructure_failure(judge: Judge, old: str, new: str, words: str) -> None:
    with pytest.raises(EvaluatorError) as caught:
        judge.evaluate(problem_of(PROBLEM.replace(old, new)), Kernel.from_source(candidate(RIGHT)))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


#: What the problem's forward returns.
REFERENCE = "torch.relu(x @ self.weight)"


@pytest.mark.slow
def test_a_random_reference_is_refused_unless_forced_and_dropout_is_not(judge: Judge) -> None:
    noisy = problem_of(PROBLEM.replace(REFERENCE, f"{REFERENCE} + 1e-6 * torch.rand(48, 64)"))
    found = judge.evaluate(noisy, Kernel.from_source(candidate(RIGHT)))
    assert found.verdict is Verdict.REFUSED
    assert "the problem is random" in found.message
    with Judge(judge.device, SETTINGS.model_copy(update={"force": True})) as forced:
        assert forced.evaluate(noisy, Kernel.from_source(candidate(RIGHT))).verdict is Verdict.CORRECT
    dropout = "nn.functional.dropout(x.new_ones(64), 0.5, self.training)"
    trained = problem_of(PROBLEM.replace(REFERENCE, f"{REFERENCE} * {dropout}"))
    found = judge.evaluate(trained, Kernel.from_source(candidate(RIGHT)))
    assert found.verdict is Verdict.CORRECT, found.message
    assert "dropout" in found.tags
