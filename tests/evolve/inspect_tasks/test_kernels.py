"""Inspect's task with Inspect's mock model: what the model is asked, what is judged, what Inspect's log holds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("inspect_ai")

from inspect_ai import eval as evaluate
from inspect_ai.log import EvalLog
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.solver import generate

from kbevolve.configs.errors import SettingsError, UsageError
from kbevolve.evolve.inspect_tasks.kernels import kernels
from tests.evolve.doubles import PROBLEM_TEXT, KnownJudge, kernel

pytestmark = pytest.mark.filterwarnings("default")  # those of inspect_ai are its own

IDEA = "1. Title: Wider tiles\nMechanism: More reuse.\nTechnique: block-tiling\nExpected gain: 1.5"
FAST, SLOW, WRONG = kernel(TILE=32, UNROLL=2), kernel(), kernel(WRONG=1)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[EvalLog, KnownJudge]]:
    """Run the task over a suite of two levels; the model gives these answers, one after another."""
    for name in ("level1/1_First.py", "level2/5_Second.py"):
        path = tmp_path / "suite" / name
        path.parent.mkdir(parents=True)
        path.write_text(f"{PROBLEM_TEXT}\n# {name}\n")

    def call(*answers: str, solver: Any = None, **arguments: Any) -> tuple[EvalLog, KnownJudge]:
        judge = KnownJudge()
        judge.replace_judge(monkeypatch)
        outputs = []
        for answer in answers:
            output = ModelOutput.from_content("mockllm/model", answer)
            output.usage = ModelUsage(input_tokens=3, output_tokens=4, total_tokens=7)  # else it downloads a tokenizer
            outputs.append(output)
        task = kernels(suite=str(tmp_path / "suite"), device="cpu", **arguments)
        options = {"solver": solver} if solver else {}
        (log,) = evaluate(
            task,
            model=get_model("mockllm/model", custom_outputs=outputs),
            log_dir=str(tmp_path / "logs"),
            display="none",
            max_samples=1,
            **options,
        )
        assert log.status == "success", log.error and log.error.message
        return log, judge

    return call


def code(one: Any) -> str:
    return f"```python\n{one.source}```"


def metrics(log: EvalLog) -> dict[str, float]:
    assert log.results is not None
    return {one.name: one.value for score in log.results.scores for one in score.metrics.values()}


def test_a_kernel_is_written_repaired_judged_and_scored(run: Any) -> None:
    log, judge = run(IDEA, code(WRONG), code(FAST), levels=1)
    (sample,) = log.samples
    score = sample.scores["judged"]
    assert score.value["correct"] == 1.0
    assert score.value["speedup"] == pytest.approx(1.6)
    assert score.answer == FAST.source
    assert judge.asked == {WRONG.id: 1, FAST.id: 1}, "the scorer asks for nothing that the solver knows"
    assert [message.role for message in sample.messages] == [
        "system", "user", "assistant", "user", "assistant", "user", "assistant",
    ]  # fmt: skip
    assert "wrong by 3" in sample.messages[5].text, "the repair shows what the judge found"
    assert log.stats.model_usage["mockllm/model"].total_tokens == 21


def test_levels_and_thresholds_are_in_the_metrics(run: Any) -> None:
    log, _ = run(IDEA, code(FAST), IDEA, code(WRONG), repairs=0, p=1.5)
    found = metrics(log)
    assert found == pytest.approx(
        {
            "correct level 1": 1.0, "correct level 2": 0.0, "correct all": 0.5,
            "geomean level 1": 1.6, "geomean level 2": 0.0, "geomean all": 1.6,
            "fast_1.5 level 1": 1.0, "fast_1.5 level 2": 0.0, "fast_1.5 all": 0.5,
        }
    )  # fmt: skip


def test_an_answer_without_code_is_not_correct(run: Any) -> None:
    log, judge = run(IDEA, "I cannot.", "Really not.", patterns=1, levels=[1])
    (sample,) = log.samples
    score = sample.scores["judged"]
    assert (score.value, score.explanation) == ({"correct": 0.0, "speedup": 0.0}, "there is no code in the answer.")
    assert not judge.asked


def test_another_solver_is_scored_by_our_judge(run: Any) -> None:
    log, judge = run(f"Here it is.\n{code(SLOW)}", solver=generate(), limit=1)
    (sample,) = log.samples
    assert judge.asked == {SLOW.id: 1}
    assert sample.scores["judged"].value["correct"] == 1.0
    assert "class Model: ..." in sample.input, "the sample alone states the problem"


def test_a_suite_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("x = 1\n")
    with pytest.raises(UsageError, match="can be read"):
        kernels(suite=str(tmp_path), device="cpu")


def test_examples_and_the_language_are_arguments(run: Any) -> None:
    few, _ = run(IDEA, code(FAST), levels=1, prompt_option="few_shot", backend="cpp")
    none, _ = run(IDEA, code(FAST), levels=1, prompt_option="zero_shot")
    asked = ["".join(one.text for one in log.samples[0].messages) for log in (few, none)]
    assert ["Example: A tiled matrix product" in text for text in asked] == [True, False]
    assert ["A complete file of this kind" in text for text in asked] == [True, False]
    with pytest.raises(SettingsError, match="written in cpp"):
        kernels(device="cpu", backend="cute")
